"""Checkpoints of ParoQuant (pairwise-rotation quantisation), read and written.

ParoQuant multiplies the activations of a Linear by a scale per channel and rotates them inside blocks of ``size``
channels. Then comes a quantised weight. Beside every such Linear its safetensors files hold

- ``channel_scales`` (1, n),
- ``pairs`` (R, n), int16: in each block of a round, places inside the block; two neighbours form a pair (i, j),
- ``theta`` (R, n/2): an angle per pair. Round 0 comes first, and takes x_i to c·x_i + s·x_j, x_j to c·x_j − s·x_i.

Experts that share a rotation have it as ``gate_up_weight_theta`` and so on, with an underscore.

A `Rotate` applies its last layer first, and its angles turn the other way. So round r is layer R − 1 − r, with −θ.

The weight is stored as AWQ stores it, see `swallowtail.integrations.awq`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail import checks, io
from swallowtail.errors import ArgumentError
from swallowtail.integrations.awq import GREATEST, dequantise, quantise
from swallowtail.nn import Rotate
from swallowtail.wiring import Grouped

__all__ = ["Checkpoint", "dequantise", "from_tensors", "load", "quantise", "save", "to_tensors"]

_NAMES = ("theta", "pairs", "channel_scales")
# Rotations that experts share: an underscore joins these names to those of their tensors.
_SHARED = ("gate_up_weight", "down_weight")
_OF_FILES = "try the folder with all files of the checkpoint: a module's tensors may lie in two of them"
_OF_CONFIG = "try the group_size of its config.json as `size`"
LOST = 0.01  # of a scale may be lost to float16; normal numbers lose 0.0005 at most


class Checkpoint(NamedTuple):
    """The rotations of a checkpoint by the names of their modules, and all its other tensors as they are."""

    rotations: dict[str, Rotate]
    tensors: dict[str, Tensor]


def load(path: str | os.PathLike[str], size: int | None = None) -> Checkpoint:
    """Read a checkpoint: a safetensors file, or a folder with all files of one.

    A large model lies in several files, and the tensors of one module may be in two of them: read its folder.

    Args:
        path: of the file or folder.
        size: channels per block. Left out, it is the ``group_size`` of the folder's config.json, or 128 for a file.
    """
    folder = Path(checks.path("path", path)).is_dir()
    tensors = _files(Path(path)) if folder else io.read(path)[0]
    if size is None:
        size = (_group_size(Path(path)) if folder else None) or 128
    names = [name for key in tensors if (name := _module(key))]
    if not names:
        got = f"{len(tensors)} tensors, none named theta"
        hint = "try the files that paroquant's convert command writes in mode real"
        raise ArgumentError(str(path), "a checkpoint of ParoQuant", got, hint)
    rotations = {}
    for name in names:
        own = {part: tensors.pop(_key(name, part), None) for part in _NAMES}
        try:
            rotations[name] = from_tensors(
                {part: tensor for part, tensor in own.items() if tensor is not None}, size
            )
        except ArgumentError as error:
            where = f"{path}, {_key(name, error.name)}"
            hint = _OF_FILES if own["pairs"] is None else error.hint
            raise ArgumentError(where, error.expected, error.got, hint) from error
    return Checkpoint(rotations, tensors)


def _files(folder: Path) -> dict[str, Tensor]:
    """The tensors of all safetensors files of a folder."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        hint = "try the folder that holds model.safetensors"
        raise ArgumentError(str(folder), "a folder with safetensors files", "none of them", hint)
    return {name: tensor for path in paths for name, tensor in io.read(path)[0].items()}


def _group_size(folder: Path) -> int | None:
    """As config.json has it, if there is one that says so. The file is not trusted."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf8"))
    except (ValueError, RecursionError) as error:  # a long row of brackets is too deep for the parser
        raise ArgumentError(
            str(path), "JSON", "something else", "try `size` and a file, not the folder"
        ) from error
    own = config.get("quantization_config") if isinstance(config, dict) else None
    size = own.get("group_size") if isinstance(own, dict) else None
    return None if size is None else checks.integer(f"{path}, group_size", size, at_least=2)


def _module(key: str) -> str:
    """The module whose angles ``key`` holds; "" if it holds something else."""
    name = key.removesuffix("theta")[:-1]
    return name if key == _key(name, "theta") else ""


def _key(name: str, part: str) -> str:
    """Of a tensor in the file."""
    return f"{name}_{part}" if name.endswith(_SHARED) else f"{name}.{part}"


def save(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint as one file, angles and channel scales in float16 as ParoQuant has them; see `to_tensors`."""
    checks.instance("checkpoint", checkpoint, Checkpoint, "try paroquant.Checkpoint(rotations, tensors)")
    rotations, tensors = checkpoint
    for name, tensor in tensors.items():
        checks.instance(name, tensor, Tensor, "try torch.as_tensor(…) on it")
    parts: dict[str, Tensor] = {}
    for name, layer in rotations.items():
        try:
            parts |= {_key(name, part): tensor for part, tensor in to_tensors(layer).items()}
        except ArgumentError as error:
            raise ArgumentError(_key(name, error.name), error.expected, error.got, error.hint) from error
    io.write(path, {**tensors, **parts}, {"format": "pt"})


def from_tensors(tensors: Mapping[str, Tensor], size: int = 128) -> Rotate:
    """The transform of one Linear as a layer: Q (s ∘ x), with float32 parameters."""
    size = checks.integer("size", size, at_least=2)
    checks.instance("tensors", tensors, Mapping, "try the dict that safetensors.torch.load_file returns")
    for name in _NAMES:
        if name in tensors:
            checks.instance(name, tensors[name], Tensor, "try torch.as_tensor(…) on it")
        elif name != "channel_scales":
            names = ", ".join(map(str, tensors)) or "none"
            hint = "try the names theta, pairs and channel_scales, without that of the module"
            raise ArgumentError(name, "a tensor of that name", f"only {names}", hint)
    theta, pairs = tensors["theta"], tensors["pairs"].cpu()
    if pairs.dtype != torch.int16:
        hint = "try .to(torch.int16), if these are places inside a block as ParoQuant has them"
        raise ArgumentError("pairs", "int16 places inside a block", pairs.dtype, hint)
    if pairs.ndim != 2 or not pairs.shape[1] or pairs.shape[1] % size or size % 2:
        expected = f"shape (rounds, a multiple of {size})" if size % 2 == 0 else "blocks of an even size"
        got = f"shape {tuple(pairs.shape)}, in blocks of {size}"
        raise ArgumentError("pairs", expected, got, _OF_CONFIG)
    n_rounds, n = pairs.shape
    if theta.shape != (n_rounds, n // 2) or not theta.dtype.is_floating_point:
        got, hint = f"shape {tuple(theta.shape)} of {theta.dtype}", "try the pairs of the same module"
        raise ArgumentError("theta", f"real numbers of shape ({n_rounds}, {n // 2})", got, hint)
    theta = theta.float()  # also the 8-bit kinds, which torch can do little else with
    checks.finite("theta", theta)
    blocks = pairs.reshape(n_rounds, n // size, size).long()
    wrong = (blocks.sort(-1).values != torch.arange(size)).any(-1).nonzero()
    if len(wrong):
        (r, block), numbers = wrong[0].tolist(), blocks[tuple(wrong[0])]
        got = f"{len(numbers.unique())} numbers from {numbers.min()} to {numbers.max()} in block {block} of round {r}"
        raise ArgumentError("pairs", f"each of 0 … {size - 1} once per block", got, _OF_CONFIG)
    places = (blocks + torch.arange(0, n, size)[:, None]).reshape(n_rounds, n // 2, 2)
    wiring = Grouped.fixed(n, size, pairs=list(places.flip(0).numpy()))
    layer = Rotate(wiring=wiring, scales=True, device=theta.device)
    scales = tensors.get("channel_scales", torch.ones(n))
    if scales.numel() != n or not scales.dtype.is_floating_point:
        got = f"shape {tuple(scales.shape)} of {scales.dtype}"
        hint = "try the scales of the same module, or leave them out: they are 1 then"
        raise ArgumentError("channel_scales", f"{n} real numbers", got, hint)
    scales = scales.float()
    checks.finite("channel_scales", scales)
    with torch.no_grad():
        layer.angles.copy_(-theta.flip(0).reshape(-1))
        if layer.scales is not None:
            layer.scales.copy_(scales.reshape(-1))
    return layer


def to_tensors(layer: Rotate) -> dict[str, Tensor]:
    """Undo `from_tensors`. A layer that leaves coordinates of a block alone gets pairs with the angle 0 for them.

    Angles and scales become float16. Angles are first brought between −π and π, unless float16 holds them exactly.
    Scales that float16 cannot hold are an error.
    """
    checks.instance("layer", layer, Rotate)
    size = _block_size(layer.wiring)
    n, n_rounds = layer.wiring.n, layer.wiring.n_layers
    pairs = np.zeros((n_rounds, n // 2, 2), np.int16)
    theta = torch.zeros(n_rounds, n // 2)
    angles = _short_angles(layer.angles.detach().double().cpu())
    for index, listed in enumerate(layer.wiring.layers()):
        start = int(layer.wiring.offsets[index])
        spare = np.setdiff1d(np.arange(n), listed).reshape(-1, 2)
        complete = np.concatenate([listed, spare])
        order = np.argsort(complete[:, 0] // size, kind="stable")
        values = torch.zeros(n // 2)
        values[: len(listed)] = -angles[start : start + len(listed)]
        pairs[n_rounds - 1 - index] = complete[order] % size
        theta[n_rounds - 1 - index] = values[torch.from_numpy(order)]
    scales = torch.ones(n) if layer.scales is None else layer.scales.detach().cpu()
    return {
        "theta": theta.half(),
        "pairs": torch.from_numpy(pairs.reshape(n_rounds, n)),
        "channel_scales": _short_scales(scales.double()).reshape(1, n),
    }


def _short_angles(angles: Tensor) -> Tensor:
    """Angles in float16, less whole turns: a large one would lose the digits that matter.

    Those that are float16 numbers already stay, so that a checkpoint comes back bit for bit.
    """
    checks.finite("angles", angles)
    turned = angles - 2 * math.pi * (angles / (2 * math.pi)).round()
    return torch.where(angles.half() == angles, angles, turned).half()


def _short_scales(scales: Tensor) -> Tensor:
    """Scales in float16, if they are still the same numbers then."""
    checks.finite("scales", scales)
    short = scales.half()
    bad = (short.double() - scales).abs() > LOST * scales.abs()
    if bool(bad.any()):
        raise ArgumentError(
            "scales",
            f"0, or sizes of 3e-6 to {GREATEST:.0f}, which float16 can hold",
            f"{float(scales[bad][0]):.3g}",
            "try scales nearer to 1, and the rest of the factor in the weight",
        )
    return short


def _block_size(wiring: Any) -> int:
    """The size of the blocks, if ParoQuant can hold the wiring: blocks of neighbours, all of one even size."""
    expected = "blocks of neighbouring coordinates, all of one even size"
    hint = "try Grouped.fixed(n, size) with an even size that divides n"
    if not isinstance(wiring, Grouped) or not wiring.groups:
        raise ArgumentError("wiring", expected, wiring, hint)
    size = wiring.size
    blocks = np.arange(wiring.n - wiring.n % size).reshape(-1, size)
    same = all(
        len(groups) == len(blocks) and all(map(np.array_equal, groups, blocks)) for groups in wiring.groups
    )
    if not same or wiring.n % size or size % 2:
        raise ArgumentError("wiring", expected, wiring, hint)
    return size
