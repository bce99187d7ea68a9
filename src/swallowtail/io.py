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

from swallowtail.operators import HybridOperator, Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Grouped, Pairs, Wiring

FORMAT = 1  # raise it when a file's meaning changes; older ones must stay readable

AnyOperator = Rotation | SignedRotation | SymmetricOperator | HybridOperator
_KINDS = "a Rotation, a SignedRotation, a SymmetricOperator or a HybridOperator"


def save(operator: AnyOperator, path: str | os.PathLike[str]) -> None:
    """Write an operator to ``path``. A kill in mid-save leaves the old file as it was."""
    if not isinstance(operator, AnyOperator):
        raise TypeError(f"save: expected {_KINDS}, got {type(operator).__name__}")
    header, tensors = pack(operator)
    write(path, tensors, {"swallowtail": json.dumps({**header, "format": FORMAT})})


def load(path: str | os.PathLike[str], device: Any = "cpu") -> AnyOperator:
    """Read an operator; a truncated, foreign or newer file is a ValueError that says which."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"load: expected a file, got nothing at {path}")
    tensors, metadata = read(path, device)
    if "swallowtail" not in metadata:
        raise ValueError(f"load: {path} is a safetensors file but was not written by swallowtail.save")
    try:
        header = json.loads(metadata["swallowtail"])
        if header["format"] > FORMAT:
            raise ValueError(
                f"load: {path} has format {header['format']}, this version reads up to {FORMAT}; "
                "upgrade swallowtail"
            )
        return unpack(header, tensors)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"load: {path} lacks a part of an operator ({type(error).__name__}: {error})"
        ) from error


def pack(operator: AnyOperator) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """An operator as a header that JSON can hold, and tensors."""
    rotation = operator if isinstance(operator, Rotation) else operator.rotation
    tensors = {"angles": rotation.angles}
    if isinstance(operator, SymmetricOperator):
        tensors["eigenvalues"] = operator.eigenvalues
    elif isinstance(operator, SignedRotation):
        tensors["signs"] = operator.signs
    elif isinstance(operator, HybridOperator):
        tensors["eigenvalues"] = operator.symmetric.eigenvalues
        tensors["basis"], tensors["weights"] = operator.basis, operator.weights
    header: dict[str, Any] = {"kind": type(operator).__name__}
    wiring = rotation.wiring
    if isinstance(wiring, Butterfly):
        header["wiring"] = {"n": wiring.n, "depth": wiring.depth, "reverse": wiring.reverse}
    elif isinstance(wiring, Pairs):
        header["wiring"] = {"n": wiring.n}
        tensors["pairs"] = torch.from_numpy(wiring.pairs.astype(np.int32))
        tensors["offsets"] = torch.from_numpy(wiring.offsets)
    if isinstance(wiring, Grouped):
        header["wiring"]["round_layers"] = wiring.round_layers.tolist()
        header["wiring"]["group_sizes"] = [[len(group) for group in groups] for groups in wiring.groups]
        coordinates = [group for groups in wiring.groups for group in groups]
        joined = np.concatenate([np.arange(0), *coordinates]).astype(np.int32)
        tensors["coordinates"] = torch.from_numpy(joined)
    return header, tensors


def unpack(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> AnyOperator:
    """Undo `pack`; KeyError, TypeError or ValueError if a part is missing or wrong."""
    rotation = Rotation(_wiring(header["wiring"], tensors), tensors["angles"])
    kind = header["kind"]
    if kind == "Rotation":
        return rotation
    if kind == "SignedRotation":
        return SignedRotation(rotation, tensors["signs"])
    if kind == "SymmetricOperator":
        return SymmetricOperator(rotation, tensors["eigenvalues"])
    if kind == "HybridOperator":
        symmetric = SymmetricOperator(rotation, tensors["eigenvalues"])
        return HybridOperator(symmetric, tensors["basis"], tensors["weights"])
    raise ValueError(f"load: expected {_KINDS}, got {kind!r}")


def _wiring(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Wiring:
    if "pairs" not in tensors:
        return Butterfly(header["n"], header["depth"], reverse=header["reverse"])
    pairs = tensors["pairs"].cpu().numpy()
    offsets = tensors["offsets"].cpu().numpy()
    if offsets[0] != 0 or offsets[-1] != len(pairs) or (np.diff(offsets) < 0).any():
        raise ValueError(f"load: expected offsets that rise from 0 to {len(pairs)}, got {offsets.tolist()}")
    layers = [pairs[a:b] for a, b in pairwise(offsets)]
    wiring = Pairs(header["n"], layers)  # checked like a user's own: the file may be damaged
    if "coordinates" not in tensors:
        return wiring
    coordinates, start, groups = tensors["coordinates"].cpu().numpy(), 0, list[list[np.ndarray]]()
    for sizes in header["group_sizes"]:
        ends = start + np.cumsum([0, *sizes])
        groups.append([coordinates[a:b] for a, b in pairwise(ends)])
        start = ends[-1]
    return Grouped.from_layers(wiring, groups, header["round_layers"])


def read(path: str | os.PathLike[str], device: Any = "cpu") -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; ValueError if it is none."""
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"load: expected a device that is there, got {device}; try device='cpu'")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        text = f"load: expected a safetensors file, {path} is truncated or of another kind ({error})"
        raise ValueError(text) from error


def write(path: str | os.PathLike[str], tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that ``path`` is at every moment the old file or the new one."""
    path = Path(path)
    # Copies: safetensors refuses tensors that share memory, as views of one vector of parameters do.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        save_file(tensors, temporary, metadata=metadata)
        temporary.chmod(mode)  # safetensors makes a file of its own, for the owner alone
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
