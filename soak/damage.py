"""Damaged files: operators, checkpoints of fits, and what the command line reads, in every format.

The promise: a file is read, or it is an `ArgumentError` that names it. No other error, no crash, no hang, no
gigabytes. An operator read from a damaged file works. A checkpoint that is not refused gives the very answer of the
whole one, unless somebody has put the digest of other contents into it.
"""

from __future__ import annotations

import json
import resource
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.numpy import save_file
from scipy.io import mmwrite

import swallowtail as st
from soak import cases
from soak.trial import Outcome, Outcomes, Trial, in_child
from swallowtail import ArgumentError, HybridOperator, Rotation, SignedRotation, SymmetricOperator
from swallowtail.cli.files import read_array
from swallowtail.fitting import checkpoint

BATCH = 400  # cases per child
MEMORY = 6 << 30  # bytes of address space a child may take beyond what it has
VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 10**9, 10**18, 10**400, -(2**31), 2**31, 2**63, 1.5, float("nan"), True, False, None, "", "false",
    "Rotation", [], [0], [[1]], {}, {"n": 1}, [[[[[[]]]]]],
)  # fmt: skip


def damaged(rng: np.random.Generator, whole: bytes, other: bytes) -> bytes:
    """Bits flipped, bytes cut, doubled, exchanged or overwritten; or another file's bytes in the middle."""
    data, kind = bytearray(whole), int(rng.integers(8))
    at = int(rng.integers(max(1, len(data))))
    # The interesting part of most formats is their header: half of the blows fall there.
    if rng.integers(2):
        at = int(rng.integers(max(1, min(len(data), 400))))
    length = int(rng.integers(1, 64))
    if kind < 3 and data:
        for _ in range(int(rng.integers(1, 4))):
            data[(at + int(rng.integers(64))) % len(data)] ^= 1 << int(rng.integers(8))
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        del data[at : at + length]
    elif kind == 5:
        data[at:at] = data[at : at + length]
    elif kind == 6:
        data[at : at + length] = rng.bytes(length)
    else:
        data[at : at + length] = other[at : at + length]
    return bytes(data)


def reworded(rng: np.random.Generator, whole: bytes) -> bytes:
    """A safetensors file whose JSON is valid but says something else: what no bit flip finds."""
    (length,) = struct.unpack("<Q", whole[:8])
    header, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    notes = header.get("__metadata__", {})
    for key, text in notes.items():
        if text.startswith("{"):
            inner = json.loads(text)
            _change(rng, inner)
            notes[key] = json.dumps(inner)
    if rng.integers(4) == 0 or not notes:
        _change(rng, header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _change(rng: np.random.Generator, node: Any) -> None:
    """Replace, delete or add one value somewhere inside."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(node[key], (dict, list)) and rng.integers(3):
            node = node[key]
            continue
        action = int(rng.integers(6))
        if action == 0 and isinstance(node, dict):
            del node[key]
        elif action == 1 and isinstance(node, dict):
            node["more"] = node[key]
        else:
            node[key] = VALUES[int(rng.integers(len(VALUES)))]
        return


def _operators(folder: Path) -> list[bytes]:
    """One file of each kind, on each kind of wiring."""
    files, rng = [], np.random.default_rng(0)
    while len(files) < 12:
        wiring, _ = cases.wiring(rng, largest=17)
        Q = Rotation(wiring, torch.from_numpy(rng.uniform(-3, 3, wiring.n_rotations)))
        H = SymmetricOperator(Q, rng.normal(size=wiring.n))
        kinds = (Q, SignedRotation(Q, np.ones(Q.n)), H, HybridOperator(H, np.ones((Q.n, 1)), np.ones(1)))
        st.save(kinds[len(files) % 4], folder / "whole")
        files.append((folder / "whole").read_bytes())
    return files


def _load(path: Path) -> Outcome:
    operator = st.load(path)
    if operator.n <= 10**5 and not operator.batch_shape:
        result = operator(torch.ones(operator.n, dtype=operator.dtype))
        if not torch.isfinite(result.float()).all() and operator.n < 100:
            largest = max(
                float(t.abs().float().max())
                for t in st.io.pack(operator)[1].values()
                if t.is_floating_point() and t.numel()
            )
            if largest < 1e15:
                return f"a loaded {type(operator).__name__} gives {result}"
    return None


def _inputs(folder: Path) -> dict[str, list[bytes]]:
    """The command line's inputs, by suffix."""
    H = st.random_symmetric(6, 3, 0)
    found = dict[str, list[bytes]]()

    def add(name: str, write: Callable[[Path], Any]) -> None:
        write(folder / name)
        found.setdefault("." + name.rpartition(".")[2], []).append((folder / name).read_bytes())

    add("a.npy", lambda p: np.save(p, H))
    add("b.npy", lambda p: np.save(p, H.astype(">f4").T))
    add("a.npz", lambda p: np.savez(p, H))
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        add(
            f"{kind}.npz",
            lambda p, kind=kind: sp.save_npz(p, sp.csr_array(H).asformat(kind), compressed=False),
        )
    add("c.npz", lambda p: sp.save_npz(p, sp.csr_array(H)))
    add("a.csv", lambda p: np.savetxt(p, H, delimiter=","))
    add("a.mtx", lambda p: mmwrite(p, H))
    add("b.mtx", lambda p: mmwrite(p, sp.coo_array(H)))
    add("c.mtx", lambda p: mmwrite(p, sp.coo_array(np.eye(4)), symmetry="symmetric"))
    add("a.safetensors", lambda p: save_file({"H": H}, p))
    return found


def _read(path: Path) -> Outcome:
    read_array(path)
    return None


def _outcome(path: Path, data: bytes, read: Callable[[Path], Outcome], seed: int) -> Outcome:
    path.write_bytes(data)
    try:
        return read(path)
    except ArgumentError as error:
        named = str(path) in str(error) or path.name in str(error)
        return None if named else f"seed {seed}: the error does not name the file: {error}"
    except Exception as error:
        return f"seed {seed}: {path.suffix} {type(error).__name__}: {error}"


def _limited() -> None:
    """A file of some kilobytes must not take gigabytes."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))


def _operator_batch(seeds: range) -> Outcomes:
    _limited()
    with tempfile.TemporaryDirectory() as name:
        files = _operators(Path(name))
        for seed in seeds:
            rng = np.random.default_rng(seed)
            whole, other = (files[int(k)] for k in rng.integers(len(files), size=2))
            data = reworded(rng, whole) if seed % 2 else damaged(rng, whole, other)
            yield _outcome(Path(name) / "q.safetensors", data, _load, seed)


def _input_batch(seeds: range) -> Outcomes:
    _limited()
    with tempfile.TemporaryDirectory() as name:
        files = _inputs(Path(name))
        suffixes = sorted(files)
        for seed in seeds:
            rng = np.random.default_rng(seed)
            suffix = suffixes[seed % len(suffixes)]
            whole, other = (files[suffix][int(k)] for k in rng.integers(len(files[suffix]), size=2))
            data = (
                reworded(rng, whole)
                if suffix == ".safetensors" and seed % 3 == 0
                else damaged(rng, whole, other)
            )
            yield _outcome(Path(name) / f"input{suffix}", data, _read, seed)


def _checkpoint_batch(seeds: range) -> Outcomes:
    """Half of them with a digest that fits, as somebody who means harm would write it."""
    _limited()
    checkpoint.EVERY, checkpoint.SHARE = 0.0, np.inf
    H = st.random_symmetric(8, 3, 0)
    expected = st.fit_symmetric(H)
    with tempfile.TemporaryDirectory() as name:
        path, states = Path(name) / "fit", list[bytes]()

        def stop(stage: str, done: int, objective: float) -> None:
            if path.exists():
                states.append(path.read_bytes())

        st.fit_symmetric(H, checkpoint=path, callback=stop)
        states = states[:: max(1, len(states) // 12)]
        for seed in seeds:
            rng = np.random.default_rng(seed)
            whole, other = (states[int(k)] for k in rng.integers(len(states), size=2))
            data = reworded(rng, whole) if seed % 2 else damaged(rng, whole, other)
            if seed % 4 < 2:
                data = _with_digest(path, data)

            def fit(path: Path, data: bytes = data, honest: bool = seed % 4 >= 2) -> Outcome:
                result = st.fit_symmetric(H, checkpoint=path, max_seconds=20)
                same = result.relative_error == expected.relative_error
                return None if same or not honest else "a damaged checkpoint gave another answer"

            yield _outcome(path, data, fit, seed)
            path.unlink(missing_ok=True)


def _with_digest(path: Path, data: bytes) -> bytes:
    """The file with the digest of what it now holds, if it can be read at all."""
    path.write_bytes(data)
    try:
        tensors, notes = st.io.read(path)
        notes[checkpoint._DIGEST] = checkpoint.digest_of_contents(tensors, notes[checkpoint._KEY])
        st.io.write(path, tensors, notes)
        return path.read_bytes()
    except Exception:
        return data


def _outcomes(batch: Callable[[range], Outcomes], seed: int) -> Outcomes:
    first = seed * 10**6
    while True:
        yield from in_child(lambda seeds=range(first, first + BATCH): batch(seeds), timeout=300)
        first += BATCH


TRIALS = (
    Trial("damaged operators", lambda seed: _outcomes(_operator_batch, seed), 6_000, 0.04),
    Trial("damaged inputs", lambda seed: _outcomes(_input_batch, seed), 6_000, 0.04),
    Trial("damaged checkpoints", lambda seed: _outcomes(_checkpoint_batch, seed), 2_000, 0.06),
)
