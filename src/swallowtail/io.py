"""Save and load operators: safetensors with a format version, written atomically, never unpickled."""

from __future__ import annotations

import json
import os
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from swallowtail.operators import Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs, Wiring

FORMAT = 1  # raise it when a file's meaning changes; older ones must stay readable


def save(operator: Rotation | SymmetricOperator, path: str | os.PathLike[str]) -> None:
    """Write an operator to ``path``. A kill in mid-save leaves the old file as it was."""
    if not isinstance(operator, (Rotation, SymmetricOperator)):
        raise TypeError(f"save: expected a Rotation or a SymmetricOperator, got {type(operator).__name__}")
    rotation = operator if isinstance(operator, Rotation) else operator.rotation
    tensors = {"angles": rotation.angles}
    if isinstance(operator, SymmetricOperator):
        tensors["eigenvalues"] = operator.eigenvalues
    header: dict[str, Any] = {"kind": type(operator).__name__, "format": FORMAT}
    wiring = rotation.wiring
    if isinstance(wiring, Butterfly):
        header["wiring"] = {"n": wiring.n, "depth": wiring.depth, "reverse": wiring.reverse}
    elif isinstance(wiring, Pairs):
        header["wiring"] = {"n": wiring.n}
        tensors["pairs"] = torch.from_numpy(wiring.pairs.astype(np.int32))
        tensors["offsets"] = torch.from_numpy(wiring.offsets)
    # Copies: safetensors refuses tensors that share memory, as views of one vector of parameters do.
    tensors = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    _write_atomically(tensors, {"swallowtail": json.dumps(header)}, Path(path))


def load(path: str | os.PathLike[str], device: Any = "cpu") -> Rotation | SymmetricOperator:
    """Read an operator; a truncated, foreign or newer file is a ValueError that says which."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"load: expected a file, got nothing at {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        text = f"load: expected a safetensors file, {path} is truncated or of another kind ({error})"
        raise ValueError(text) from error
    if "swallowtail" not in metadata:
        raise ValueError(f"load: {path} is a safetensors file but was not written by swallowtail.save")
    try:
        header = json.loads(metadata["swallowtail"])
        if header["format"] > FORMAT:
            raise ValueError(
                f"load: {path} has format {header['format']}, this version reads up to {FORMAT}; "
                "upgrade swallowtail"
            )
        rotation = Rotation(_wiring(header["wiring"], tensors), tensors["angles"])
        if header["kind"] == "Rotation":
            return rotation
        if header["kind"] == "SymmetricOperator":
            return SymmetricOperator(rotation, tensors["eigenvalues"])
        raise ValueError(f"load: expected a Rotation or a SymmetricOperator in {path}, got {header['kind']!r}")
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"load: {path} lacks a part of an operator ({type(error).__name__}: {error})"
        ) from error


def _wiring(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Wiring:
    if "pairs" not in tensors:
        return Butterfly(header["n"], header["depth"], reverse=header["reverse"])
    pairs = tensors["pairs"].cpu().numpy()
    offsets = tensors["offsets"].cpu().numpy()
    if offsets[0] != 0 or offsets[-1] != len(pairs) or (np.diff(offsets) < 0).any():
        raise ValueError(f"load: expected offsets that rise from 0 to {len(pairs)}, got {offsets.tolist()}")
    layers = [pairs[a:b] for a, b in pairwise(offsets)]
    return Pairs(header["n"], layers)  # checked like a user's own: the file may be damaged


def _write_atomically(tensors: dict[str, torch.Tensor], metadata: dict[str, str], path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # created with the user's own umask
    try:
        save_file(tensors, temporary, metadata=metadata)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
