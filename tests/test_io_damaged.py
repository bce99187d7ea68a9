"""Damaged operator files: one kind of error, which names the file; no hang, no crash, no gigabytes."""

import json
import struct
import time

import numpy as np
import pytest
import torch
from cases import WIRINGS
from safetensors import safe_open
from safetensors.torch import save_file

from swallowtail import (
    ArgumentError,
    Grouped,
    HybridOperator,
    Pairs,
    Rotation,
    SignedRotation,
    SymmetricOperator,
    load,
    save,
)

SYMMETRIC = SymmetricOperator(Rotation.random(4, seed=0), torch.ones(4))
PAIRS = Rotation(Pairs(4, [[(0, 1), (2, 3)]]), torch.ones(2))
GROUPED = Rotation(Grouped(4, [[([0, 1, 2], [(0, 1), (1, 2)])], [([2, 3], [(2, 3)])]]), torch.ones(3))
SIGNED = SignedRotation(
    Rotation(WIRINGS["pairs-17"], torch.ones(WIRINGS["pairs-17"].n_rotations)), torch.ones(17)
)
HYBRID = HybridOperator(SYMMETRIC, torch.ones(4, 2), torch.ones(2))


def written(tmp_path, operator=SYMMETRIC, header=None, tensors=None, text=None):
    """A file like ours with entries of its header or tensors changed; None takes a tensor out."""
    path = tmp_path / "changed"
    save(operator, path)
    with safe_open(path, framework="pt") as file:
        found = json.loads(file.metadata()["swallowtail"])
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    found.update(header or {})
    stored = {name: t for name, t in {**stored, **(tensors or {})}.items() if t is not None}
    save_file(stored, path, metadata={"swallowtail": json.dumps(found) if text is None else text})
    return path


def wiring(**change):
    return {"wiring": {"n": 4, "depth": 1, "reverse": False, **change}}


def grouped(**change):
    return {"wiring": {"n": 4, "round_layers": [0, 2, 3], "group_sizes": [[3], [2]], **change}}


def ints(*rows, dtype=torch.int32):
    return torch.tensor(rows, dtype=dtype)


DAMAGE = {
    "unknown kind": (SYMMETRIC, {"kind": "Mixture"}, {}, "kind: expected a Rotation"),
    "no kind": (SYMMETRIC, {"kind": None}, {}, "kind: expected a Rotation"),
    "a list for a kind": (SYMMETRIC, {"kind": []}, {}, "kind: expected a Rotation"),
    "another kind": (SYMMETRIC, {"kind": "Rotation"}, {}, "tensors: expected angles, got angles, eigenvalues"),
    "format is a word": (SYMMETRIC, {"format": "two"}, {}, "format: expected a whole number from 1"),
    "format is true": (SYMMETRIC, {"format": True}, {}, "format: expected a whole number"),
    "format is negative": (SYMMETRIC, {"format": -3}, {}, "format: expected a whole number from 1"),
    "format is newer": (SYMMETRIC, {"format": 2}, {}, "format: expected at most 1, got 2; upgrade swallowtail"),
    "no wiring": (SYMMETRIC, {"wiring": {}}, {}, "n: expected an entry in the file's metadata, got none"),
    "a list for a wiring": (SYMMETRIC, {"wiring": []}, {}, "n: expected an entry in the file's metadata"),
    "no depth": (SYMMETRIC, {"wiring": {"n": 4, "reverse": False}}, {}, "depth: expected an entry in"),
    "another n": (SYMMETRIC, wiring(n=5), {}, "angles: expected 5 angles, as n = 5 and depth = 1 have"),
    "n is no integer": (SYMMETRIC, wiring(n=4.5), {}, "n: expected a whole number from 1"),
    "n is NaN": (SYMMETRIC, wiring(n=float("nan")), {}, "n: expected a whole number"),
    "n is 0": (SYMMETRIC, wiring(n=0), {}, "n: expected a whole number from 1"),
    "n is 2^60": (SYMMETRIC, wiring(n=2**60), {}, "n: expected a whole number from 1"),
    "n is 10^400": (SYMMETRIC, wiring(n=10**400), {}, "got about 10^400"),
    "n is the largest": (SYMMETRIC, wiring(n=2**31 - 1), {}, "angles: expected 33285996513 angles"),
    "depth is 10^9": (SYMMETRIC, wiring(depth=10**9), {}, "angles: expected 4000000000 angles"),
    "depth is 10^18": (SYMMETRIC, wiring(depth=10**18), {}, "depth: expected a whole number from 1"),
    "depth is 10^9 at n = 1": (
        Rotation.identity(1), {"wiring": {"n": 1, "depth": 10**9, "reverse": False}}, {}, "GiB this machine has",
    ),
    "reverse is a word": (SYMMETRIC, wiring(reverse="false"), {}, "reverse: expected true or false, got 'false'"),
    "no angles": (SYMMETRIC, {}, {"angles": None}, "tensors: expected angles, eigenvalues, got eigenvalues"),
    "no eigenvalues": (SYMMETRIC, {}, {"eigenvalues": None}, "tensors: expected angles, eigenvalues"),
    "one tensor more": (SYMMETRIC, {}, {"more": torch.ones(1)}, "got angles, eigenvalues, more"),
    "too few angles": (SYMMETRIC, {}, {"angles": torch.zeros(3)}, "angles: expected 4 angles"),
    "a number for angles": (SYMMETRIC, {}, {"angles": torch.tensor(1.0)}, "angles: expected 4 angles"),
    "NaN angles": (SYMMETRIC, {}, {"angles": torch.full((4,), torch.nan)}, "angles: expected finite numbers"),
    "complex angles": (SYMMETRIC, {}, {"angles": torch.zeros(4, dtype=torch.complex64)}, "angles: expected float64"),
    "whole angles": (SYMMETRIC, {}, {"angles": ints(0, 0, 0, 0)}, "angles: expected float64"),
    "too many eigenvalues": (SYMMETRIC, {}, {"eigenvalues": torch.zeros(5)}, "eigenvalues: expected the last axis"),
    "NaN eigenvalues": (SYMMETRIC, {}, {"eigenvalues": torch.tensor([1, 1, 1, torch.nan])}, "expected finite numbers"),
    "infinite eigenvalues": (SYMMETRIC, {}, {"eigenvalues": torch.full((4,), torch.inf)}, "expected finite numbers"),
    "unmatched batches": (
        SYMMETRIC, {}, {"angles": torch.zeros(2, 4), "eigenvalues": torch.ones(3, 4)}, "expected batch shapes that",
    ),
    "index out of range": (PAIRS, {}, {"pairs": ints((0, 1), (2, 9))}, "pairs: expected coordinates in 0 … 3, got 9"),
    "negative index": (PAIRS, {}, {"pairs": ints((0, 1), (2, -1))}, "pairs: expected coordinates in 0 … 3, got -1"),
    "i = j": (PAIRS, {}, {"pairs": ints((0, 1), (2, 2))}, "disjoint pairs, got coordinate 2 more than once in layer 0"),
    "overlapping pairs": (PAIRS, {}, {"pairs": ints((0, 1), (1, 2))}, "got coordinate 1 more than once in layer 0"),
    "flat pairs": (PAIRS, {}, {"pairs": ints(0, 1, 2, 3)}, "pairs: expected whole numbers, 2 axes"),
    "triples": (PAIRS, {}, {"pairs": ints((0, 1, 2), (2, 3, 0))}, "pairs: expected shape (K, 2)"),
    "pairs of numbers": (PAIRS, {}, {"pairs": torch.zeros(2, 2)}, "pairs: expected whole numbers, 2 axes"),
    "pairs without n": (PAIRS, {"wiring": {}}, {}, "n: expected an entry in the file's metadata"),
    "pairs on 10^400": (PAIRS, {"wiring": {"n": 10**400}}, {}, "got about 10^400"),
    "short offsets": (PAIRS, {}, {"offsets": ints(0, 1)}, "offsets: expected numbers that rise from 0 to 2"),
    "late offsets": (PAIRS, {}, {"offsets": ints(1, 2)}, "offsets: expected numbers that rise"),
    "falling offsets": (PAIRS, {}, {"offsets": ints(0, 5, 2)}, "offsets: expected numbers that rise"),
    "empty offsets": (PAIRS, {}, {"offsets": ints()}, "offsets: expected numbers that rise"),
    "no offsets": (PAIRS, {}, {"offsets": None}, "tensors: expected angles, offsets, pairs"),
    "no pairs": (PAIRS, {}, {"pairs": None}, "tensors: expected angles, got angles, offsets"),
    "signs of 2": (SIGNED, {}, {"signs": torch.full((17,), 2.0)}, "signs: expected +1 or −1, got 17 others"),
    "a row less": (HYBRID, {}, {"basis": torch.ones(3, 2)}, "basis: expected shape (4, r)"),
    "a weight less": (HYBRID, {}, {"weights": torch.ones(1)}, "weights: expected shape (2,)"),
    "NaN in the basis": (HYBRID, {}, {"basis": torch.full((4, 2), torch.nan)}, "basis: expected finite numbers"),
    "no sizes": (GROUPED, grouped(group_sizes=None), {}, "group_sizes: expected a list"),
    "flat sizes": (GROUPED, grouped(group_sizes=[3, 2]), {}, "group_sizes: expected a list for each round"),
    "a size of 10^18": (GROUPED, grouped(group_sizes=[[10**18], [2]]), {}, "group_sizes: expected a whole number"),
    "a size of 0": (GROUPED, grouped(group_sizes=[[3, 0], [2]]), {}, "group_sizes: expected a whole number from 1"),
    "sizes too small": (GROUPED, grouped(group_sizes=[[2], [2]]), {}, "group_sizes: expected 5 coordinates in all"),
    "a round too many": (GROUPED, grouped(group_sizes=[[3], [1], [1]]), {}, "round_layers: expected 4 numbers"),
    "rounds of 10^30": (GROUPED, grouped(round_layers=[0, 10**30, 3]), {}, "round_layers: expected a whole number"),
    "no rounds": (GROUPED, grouped(round_layers=[], group_sizes=[]), {}, "group_sizes: expected 5 coordinates"),
    "a foreign pair": (GROUPED, {}, {"coordinates": ints(0, 1, 3, 2, 3)}, "expected pairs inside the group"),
    "groups that overlap": (GROUPED, {}, {"coordinates": ints(0, 1, 1, 2, 3)}, "expected each coordinate once"),
    "groups out of range": (GROUPED, {}, {"coordinates": ints(0, 1, 9, 2, 3)}, "got 9"),
}  # fmt: skip


@pytest.mark.parametrize("operator", [SYMMETRIC, PAIRS, GROUPED, SIGNED, HYBRID], ids=repr)
def test_unchanged_files_load(operator, tmp_path):
    x = torch.arange(float(operator.n))
    assert torch.equal(load(written(tmp_path, operator)) @ x, operator @ x)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name, tmp_path):
    operator, header, tensors, text = DAMAGE[name]
    path = written(tmp_path, operator, header, tensors)
    with pytest.raises(ArgumentError) as caught:
        load(path)
    assert text in str(caught.value)
    assert caught.value.name.startswith(str(path))


TEXTS = {
    "deep": ("[" * 100_000 + "]" * 100_000, "metadata: expected JSON, got RecursionError"),
    "5000 digits": ('{"format": 1' + "0" * 5000 + "}", "metadata: expected JSON, got ValueError"),
    "junk": ("swallowtail", "metadata: expected JSON"),
    "empty": ("", "metadata: expected JSON"),
    "a list": ("[1]", "format: expected an entry in the file's metadata"),
    "a number": ("1", "format: expected an entry in the file's metadata"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_metadata(name, tmp_path):
    text, expected = TEXTS[name]
    with pytest.raises(ArgumentError) as caught:
        load(written(tmp_path, text=text))
    assert expected in str(caught.value)


def test_foreign(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"PK\x03\x04 this is something else altogether" * 10)
    with pytest.raises(ArgumentError, match="truncated or of another kind"):
        load(path)
    save_file({"angles": torch.zeros(4)}, path)
    with pytest.raises(ArgumentError, match=r"other: expected a file written by swallowtail.save"):
        load(path)
    with pytest.raises(FileNotFoundError, match="expected a file, got nothing at"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 50, 0.5, 0.99])
def test_truncated(tmp_path, keep):
    path = tmp_path / "q"
    save(Rotation.random(64, seed=0), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    with pytest.raises(ArgumentError, match="q: expected a safetensors file, got one that is truncated"):
        load(path)


def test_many_empty_layers_take_no_time(tmp_path):
    offsets = torch.zeros(10**6, dtype=torch.int64)
    offsets[-1] = 2
    start = time.perf_counter()
    assert load(written(tmp_path, PAIRS, tensors={"offsets": offsets})).wiring.n_layers == 10**6 - 1
    assert time.perf_counter() - start < 5


def damaged(whole, rng):
    """Flipped bits, a cut, bytes put in or taken out, or another header length."""
    data, kind = bytearray(whole), rng.integers(6)
    where = int(rng.integers(len(data)))
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    if kind == 0:
        return bytes(data[:where])
    if kind == 1:
        data[:8] = struct.pack("<Q", int(2 ** rng.uniform(0, 63)))
        return bytes(data)
    if kind == 2:
        return bytes(data[:where] + rng.bytes(int(rng.integers(1, 9))) + data[where:])
    if kind == 3:
        return bytes(data[:where] + data[where + int(rng.integers(1, 9)) :])
    end = header if kind == 4 else len(data)  # the header alone, or everything
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(8, end))] ^= 1 << int(rng.integers(8))
    return bytes(data)


@pytest.mark.parametrize("operator", [SYMMETRIC, PAIRS, GROUPED, SIGNED, HYBRID], ids=repr)
def test_fuzz(operator, tmp_path):
    """A damaged file is refused, or what it holds is an operator that works."""
    save(operator, tmp_path / "whole")
    whole, path, rng = (tmp_path / "whole").read_bytes(), tmp_path / "damaged", np.random.default_rng(0)
    refused = worked = 0
    for _ in range(150):
        path.write_bytes(damaged(whole, rng))
        try:
            found = load(path)
        except ArgumentError as error:
            refused += str(path) in str(error)
        else:
            assert (found @ torch.ones(found.n)).isfinite().all()
            worked += 1
    assert refused > 75
    assert refused + worked == 150


def test_offsets_whose_differences_wrap_around(tmp_path):
    """In int64, −2⁶³ minus 2⁶³ − 1 is +1: these seem to rise, and to repeat 2⁶⁴ + 2 numbers crashes NumPy."""
    offsets = torch.tensor([0, 2**63 - 1, -(2**63), -1, 2], dtype=torch.int64)
    with pytest.raises(ArgumentError, match="offsets: expected numbers that rise from 0 to 2"):
        load(written(tmp_path, PAIRS, tensors={"offsets": offsets}))
