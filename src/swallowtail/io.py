"""Save and load operators: safetensors with a format version, written atomically, never unpickled.

A file is not trusted: everything read from it is checked before an operator is made of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize

from swallowtail import atomic, checks
from swallowtail.errors import ArgumentError
from swallowtail.operators import HybridOperator, Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Grouped, Pairs, Wiring, pairs_at_stride

FORMAT = 1  # raise it when a file's meaning changes; older ones must stay readable
LARGEST = 2**31 - 1  # coordinates are stored as int32
READS = 1000  # attempts to read a file that others replace meanwhile

AnyOperator = Rotation | SignedRotation | SymmetricOperator | HybridOperator
_PARTS = {  # the tensors of each kind, beside angles and wiring
    "Rotation": (),
    "SignedRotation": ("signs",),
    "SymmetricOperator": ("eigenvalues",),
    "HybridOperator": ("eigenvalues", "basis", "weights"),
}
_KINDS = "a Rotation, a SignedRotation, a SymmetricOperator or a HybridOperator"


def save(operator: AnyOperator, path: str | os.PathLike[str]) -> None:
    """Write an operator to ``path``.

    A kill, an interrupt or a full disk in mid-save leaves the old file as it was. The new file has the permissions of
    the old one; a symbolic link stays, and what it points to is replaced.

    Args:
        operator: a `Rotation`, `SignedRotation`, `SymmetricOperator` or `HybridOperator`, on any device.
        path: of the file, in a folder that exists; usually ending in ``.safetensors``.

    Raises:
        ArgumentError: the operator is none of these, or has numbers that are not finite.
        OSError: the file cannot be written.
    """
    if not isinstance(operator, AnyOperator):
        raise ArgumentError("operator", _KINDS, type(operator).__name__, checks.operator_in(operator))
    checks.path("path", path)
    header, tensors = pack(operator)
    for name in ("angles", *_PARTS[header["kind"]]):
        checks.finite(name, tensors[name])  # `load` would refuse the file
    write(path, tensors, {"swallowtail": json.dumps({**header, "format": FORMAT})})


def load(path: str | os.PathLike[str], device: Any = "cpu") -> AnyOperator:
    """Read an operator that `save` has written.

    Args:
        path: of the file. It is not trusted: nothing in it is run, and all of it is checked.
        device: where the operator goes.

    Raises:
        ArgumentError: a truncated, damaged, foreign or newer file, or a device that is not there; it says which.
        FileNotFoundError: there is no such file.
    """
    device = checks.device("device", device)
    if device.type == "meta":
        raise ArgumentError("device", "one that holds numbers", device, "try device='cpu'")
    if not Path(checks.path("path", path)).is_file():
        raise FileNotFoundError(f"path: expected a file, got nothing at {path}")
    tensors, metadata = read(path)
    try:
        operator = unpack(_header(metadata), tensors)
    except ArgumentError as error:
        part = f", {error.name}" if error.name else ""
        raise ArgumentError(f"{path}{part}", error.expected, error.got, error.hint) from error
    return operator if device.type == "cpu" else operator.to(device)


def pack(operator: AnyOperator) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """An operator as a header that JSON can hold, and tensors."""
    rotation = operator if isinstance(operator, Rotation) else operator.rotation
    tensors = {"angles": rotation.angles}
    if isinstance(operator, SymmetricOperator):
        tensors["eigenvalues"] = operator.eigenvalues
    elif isinstance(operator, SignedRotation):
        tensors["signs"] = operator.signs
    elif isinstance(operator, HybridOperator):
        d = operator.symmetric.eigenvalues
        one = not rotation.n_rotations and bool((d == d[0]).all())  # c·I: one number
        tensors["eigenvalues"] = d[:1] if one else d
        tensors["basis"], tensors["weights"] = operator.basis, operator.weights
    header: dict[str, Any] = {"kind": type(operator).__name__}
    wiring = rotation.wiring
    if isinstance(wiring, Butterfly):
        header["wiring"] = {"n": wiring.n, "depth": wiring.depth, "reverse": wiring.reverse}
    elif isinstance(wiring, Pairs):
        header["wiring"] = {"n": wiring.n}
        tensors["pairs"] = torch.from_numpy(wiring.pairs.astype(np.int32))
        tensors["offsets"] = torch.from_numpy(wiring.offsets.copy())
    if isinstance(wiring, Grouped):
        header["wiring"]["round_layers"] = wiring.round_layers.tolist()
        header["wiring"]["group_sizes"] = [[len(group) for group in groups] for groups in wiring.groups]
        coordinates = [group for groups in wiring.groups for group in groups]
        joined = np.concatenate([np.arange(0), *coordinates]).astype(np.int32)
        tensors["coordinates"] = torch.from_numpy(joined)
    return header, tensors


def unpack(header: Any, tensors: dict[str, torch.Tensor]) -> AnyOperator:
    """Undo `pack`, on the CPU; an `ArgumentError` if a part is missing or wrong."""
    kind, wiring = _entry(header, "kind"), _entry(header, "wiring")  # both from JSON: of any type
    if not isinstance(kind, str) or kind not in _PARTS:
        raise ArgumentError("kind", _KINDS, repr(kind)[:60])
    of_wiring = ["pairs", "offsets"] if "pairs" in tensors else []
    of_wiring += ["coordinates"] if "coordinates" in tensors else []
    expected = sorted(["angles", *_PARTS[kind], *of_wiring])
    if sorted(tensors) != expected:
        raise ArgumentError("tensors", ", ".join(expected), ", ".join(sorted(tensors)) or "none")
    for name in ("angles", *_PARTS[kind]):
        checks.real_dtype(name, tensors[name].dtype)
        checks.finite(name, tensors[name])
    rotation = Rotation(_wiring(wiring, tensors), tensors["angles"])
    if kind == "Rotation":
        return rotation
    if kind == "SignedRotation":
        return SignedRotation(rotation, tensors["signs"])
    d = tensors["eigenvalues"]
    if kind == "HybridOperator" and not rotation.n_rotations and d.shape == (1,):
        # Before as many numbers are made of one.
        checks.last_axis("basis", tensors["basis"].mT, rotation.n, "n")
        d = d.repeat(rotation.n)
    symmetric = SymmetricOperator(rotation, d)
    if kind == "SymmetricOperator":
        return symmetric
    return HybridOperator(symmetric, tensors["basis"], tensors["weights"])


def read(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, on the CPU, and its metadata; an `ArgumentError` if it is none."""
    for _ in range(READS):
        before, got = _identity(path), "one that is replaced all the time"
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                # Clones: the tensors are views of the file, which may change or shrink while they are used.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
                metadata = file.metadata() or {}
            if _identity(path) == before:
                return tensors, metadata
        except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            # safetensors itself raises the first; PyTorch the others, for a dtype or a shape that it does not know.
            if _identity(path) == before:
                got = f"one that is truncated or of another kind ({error})"
                raise ArgumentError(str(path), "a safetensors file", got) from error
    raise ArgumentError(str(path), "a safetensors file", got)


def _identity(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Differs when another file has taken this one's place: safetensors opens a file twice, header and numbers."""
    there = os.stat(path)
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns


def write(path: str | os.PathLike[str], tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that ``path`` is at every moment the old file or the new one; see `atomic`."""
    # Copies: safetensors refuses tensors that share memory, as views of one vector of parameters do.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    contents = serialize(tensors, metadata=metadata)
    with atomic.replacing(path) as file:
        file.write(contents)


def _header(metadata: dict[str, str]) -> Any:
    """What `save` wrote beside the tensors."""
    if "swallowtail" not in metadata:
        raise ArgumentError("", "a file written by swallowtail.save", "a safetensors file of somebody else")
    try:
        header = json.loads(metadata["swallowtail"])
    except (ValueError, RecursionError) as error:
        raise ArgumentError("metadata", "JSON", f"{type(error).__name__}: {error}") from error
    version = _whole("format", _entry(header, "format"), 1, LARGEST)
    if version > FORMAT:
        raise ArgumentError("format", f"at most {FORMAT}", version, "upgrade swallowtail")
    return header


def _wiring(header: Any, tensors: dict[str, torch.Tensor]) -> Wiring:
    """The wiring; its sizes are compared with those of the tensors before anything is made of them."""
    n = _whole("n", _entry(header, "n"), 1, LARGEST)
    if "pairs" not in tensors:
        reverse = _entry(header, "reverse")
        if not isinstance(reverse, bool):
            raise ArgumentError("reverse", "true or false", repr(reverse)[:60])
        depth, strides = _entry(header, "depth"), (1 << e for e in range((n - 1).bit_length()))
        once = sum(pairs_at_stride(n, p) for p in strides)
        angles = tensors["angles"]
        if _whole("depth", depth, 1, LARGEST) * once != (angles.shape[-1] if angles.ndim else -1):
            expected = f"{checks.short(depth * once)} angles, as n = {n} and depth = {depth} have"
            raise ArgumentError("angles", expected, f"shape {tuple(angles.shape)}")
        return Butterfly(n, depth, reverse=reverse)
    wiring = _pairs(n, _integers("pairs", tensors, 2), _integers("offsets", tensors, 1))
    if "coordinates" not in tensors:
        return wiring
    return _grouped(wiring, header, _integers("coordinates", tensors, 1))


def _pairs(n: int, pairs: np.ndarray, offsets: np.ndarray) -> Pairs:
    """All layers at once: a damaged file may have millions of them."""
    if pairs.shape[1] != 2:
        raise ArgumentError("pairs", "shape (K, 2)", pairs.shape)
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(pairs) or not _rising(offsets):
        got = f"{len(offsets)} numbers that do not"
        raise ArgumentError("offsets", f"numbers that rise from 0 to {len(pairs)}", got)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= n):
        bad = pairs.min() if pairs.min() < 0 else pairs.max()
        raise ArgumentError("pairs", f"coordinates in 0 … {n - 1}", int(bad))
    layer = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    once, counts = np.unique(layer[:, None] * n + pairs, return_counts=True)
    if len(once) < pairs.size:
        index, coordinate = divmod(int(once[counts.argmax()]), n)
        got = f"coordinate {coordinate} more than once in layer {index}"
        raise ArgumentError("pairs", "layers of disjoint pairs", got)
    return Pairs.from_flat(n, pairs, offsets)


def _rising(numbers: np.ndarray) -> bool:
    """Compared, not subtracted: a difference of two int64 numbers may wrap around."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def _grouped(wiring: Pairs, header: Any, coordinates: np.ndarray) -> Grouped:
    """The rounds of a `Grouped`, which checks them itself once their sizes are right."""
    starts, sizes = _list("round_layers", header), _list("group_sizes", header)
    for start in starts:
        _whole("round_layers", start, 0, wiring.n_layers)
    groups, position = list[Sequence[np.ndarray]](), 0
    for of_round in sizes:
        if not isinstance(of_round, list):
            raise ArgumentError("group_sizes", "a list for each round", repr(of_round)[:60])
        ends = [position]
        for size in of_round:
            ends.append(ends[-1] + _whole("group_sizes", size, 1, len(coordinates)))
        groups.append([coordinates[a:b] for a, b in pairwise(ends)])
        position = ends[-1]
    if position != len(coordinates):
        raise ArgumentError("group_sizes", f"{len(coordinates)} coordinates in all", position)
    return Grouped.from_layers(wiring, groups, starts)


def _entry(header: Any, name: str) -> Any:
    """An entry of a JSON object."""
    if not isinstance(header, dict) or name not in header:
        raise ArgumentError(name, "an entry in the file's metadata", "none")
    return header[name]


def _list(name: str, header: Any) -> list[Any]:
    found = _entry(header, name)
    if not isinstance(found, list):
        raise ArgumentError(name, "a list", repr(found)[:60])
    return found


def _whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from a file, in its range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(name, f"a whole number from {low} to {high}", repr(value)[:60])
    if not low <= value <= high:
        raise ArgumentError(name, f"a whole number from {low} to {high}", checks.short(value))
    return value


def _integers(name: str, tensors: dict[str, torch.Tensor], ndim: int) -> np.ndarray:
    """A tensor of whole numbers with so many axes, as int64."""
    tensor = tensors[name]
    if tensor.dtype not in (torch.int32, torch.int64) or tensor.ndim != ndim:
        got = f"shape {tuple(tensor.shape)} of {tensor.dtype}"
        raise ArgumentError(name, f"whole numbers, {ndim} {'axis' if ndim == 1 else 'axes'}", got)
    return tensor.numpy().astype(np.int64)
