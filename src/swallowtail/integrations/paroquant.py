"""Checkpoints of ParoQuant (pairwise-rotation quantisation), read and written.

ParoQuant multiplies the activations of a Linear by a scale per channel and rotates them inside blocks of ``size``
channels. Then comes a quantised weight. Beside every such Linear its safetensors files hold

- ``channel_scales`` (1, n),
- ``pairs`` (R, n), int16: in each block of a round, places inside the block; two neighbours form a pair (i, j),
- ``theta`` (R, n/2): an angle per pair. Round 0 comes first, and takes x_i to c·x_i + s·x_j, x_j to c·x_j − s·x_i.

A `Rotate` applies its last layer first, and its angles turn the other way. So round r is layer R − 1 − r, with −θ.

The weight is stored as AWQ stores it: ``qweight`` (n, m/8) and ``qzeros`` (n/size, m/8), eight 4-bit numbers per int32,
and ``scales`` (n/size, m).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail import checks, io
from swallowtail.errors import ArgumentError
from swallowtail.nn import Rotate
from swallowtail.wiring import Grouped

LARGEST = 15  # of a 4-bit number
ORDER = (
    0,
    2,
    4,
    6,
    1,
    3,
    5,
    7,
)  # which of eight neighbouring columns the bits of an int32 hold, lowest first
_NAMES = ("theta", "pairs", "channel_scales")
GREATEST = torch.finfo(torch.float16).max
LOST = 0.01  # of a scale may be lost to float16; normal numbers lose 0.0005 at most


class Checkpoint(NamedTuple):
    """The rotations of a checkpoint by the names of their modules, and all its other tensors as they are."""

    rotations: dict[str, Rotate]
    tensors: dict[str, Tensor]


def load(path: str | os.PathLike[str], size: int = 128) -> Checkpoint:
    """Read a safetensors file; ``size`` is the ``group_size`` of the checkpoint's config.json."""
    tensors, _ = io.read(path)
    names = [key.removesuffix(".theta") for key in tensors if key.endswith(".theta")]
    if not names:
        got = f"{len(tensors)} tensors, none named theta"
        hint = "try the files that paroquant's convert command writes in mode real"
        raise ArgumentError(str(path), "a checkpoint of ParoQuant", got, hint)
    rotations = {}
    for name in names:
        own = {part: tensors.pop(f"{name}.{part}", None) for part in _NAMES}
        try:
            rotations[name] = from_tensors(
                {part: tensor for part, tensor in own.items() if tensor is not None}, size
            )
        except ArgumentError as error:
            where = f"{path}, {name}.{error.name}"
            raise ArgumentError(where, error.expected, error.got, error.hint) from error
    return Checkpoint(rotations, tensors)


def save(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint, angles and channel scales in float16 as ParoQuant has them; see `to_tensors`."""
    rotations, tensors = checkpoint
    parts: dict[str, Tensor] = {}
    for name, layer in rotations.items():
        try:
            parts |= {f"{name}.{part}": tensor for part, tensor in to_tensors(layer).items()}
        except ArgumentError as error:
            raise ArgumentError(f"{name}.{error.name}", error.expected, error.got, error.hint) from error
    io.write(path, {**tensors, **parts}, {"format": "pt"})


def from_tensors(tensors: Mapping[str, Tensor], size: int = 128) -> Rotate:
    """The transform of one Linear as a layer: Q (s ∘ x), with float32 parameters."""
    missing = [name for name in ("theta", "pairs") if name not in tensors]
    if missing:
        raise ArgumentError(missing[0], "a tensor of that name", f"only {', '.join(tensors) or 'none'}")
    theta, pairs = tensors["theta"], tensors["pairs"]
    size = checks.integer("size", size, at_least=2)
    if pairs.ndim != 2 or pairs.dtype != torch.int16 or pairs.shape[1] % size or size % 2:
        got = f"shape {tuple(pairs.shape)} of {pairs.dtype}"
        hint = "try the group_size of its config.json as `size`"
        raise ArgumentError("pairs", f"int16 of shape (rounds, a multiple of {size})", got, hint)
    n_rounds, n = pairs.shape
    if theta.shape != (n_rounds, n // 2) or not theta.dtype.is_floating_point:
        got = f"shape {tuple(theta.shape)} of {theta.dtype}"
        raise ArgumentError("theta", f"real numbers of shape ({n_rounds}, {n // 2})", got)
    theta = theta.float()  # also the 8-bit kinds, which torch can do little else with
    checks.finite("theta", theta)
    blocks = pairs.reshape(n_rounds, n // size, size).long()
    if not bool((blocks.sort(-1).values == torch.arange(size)).all()):
        hint = "try the group_size of its config.json as `size`"
        raise ArgumentError("pairs", f"each of 0 … {size - 1} once per block", "something else", hint)
    places = (blocks + torch.arange(0, n, size)[:, None]).reshape(n_rounds, n // 2, 2)
    wiring = Grouped.fixed(n, size, pairs=list(places.flip(0).numpy()))
    layer = Rotate(wiring=wiring, scales=True)
    scales = tensors.get("channel_scales", torch.ones(n))
    if scales.numel() != n or not scales.dtype.is_floating_point:
        got = f"shape {tuple(scales.shape)} of {scales.dtype}"
        raise ArgumentError("channel_scales", f"{n} real numbers", got)
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


def dequantise(tensors: Mapping[str, Tensor], name: str) -> Tensor:  # shape: (m, n)
    """The weight of the module ``name`` in float32, from its ``qweight``, ``qzeros`` and ``scales``."""
    missing = [part for part in ("qweight", "qzeros", "scales") if f"{name}.{part}" not in tensors]
    if missing:
        raise ArgumentError("name", "a module with qweight, qzeros and scales", f"no {name}.{missing[0]}")
    weight, zero, scales = (tensors[f"{name}.{part}"] for part in ("qweight", "qzeros", "scales"))
    shapes = [tuple(t.shape) for t in (weight, zero, scales)]
    whole = (
        len(set(map(len, shapes))) == 1
        and scales.ndim == 2
        and len(scales)
        and len(weight) % len(scales) == 0
    )
    if not whole or shapes[1] != (len(scales), weight.shape[1]) or scales.shape[1] != 8 * weight.shape[1]:
        expected = "qweight (n, m/8), qzeros (n/size, m/8) and scales (n/size, m)"
        raise ArgumentError(name, expected, ", ".join(map(str, shapes)))
    if weight.dtype != torch.int32 or zero.dtype != torch.int32 or not scales.dtype.is_floating_point:
        got = f"{weight.dtype}, {zero.dtype} and {scales.dtype}"
        raise ArgumentError(name, "qweight and qzeros of int32, real scales", got)
    codes, zeros, scales = _unpack(weight), _unpack(zero), scales.float()
    size = len(codes) // len(scales)
    return ((codes - zeros.repeat_interleave(size, 0)) * scales.repeat_interleave(size, 0)).T.contiguous()


def quantise(weight: Tensor, name: str, size: int = 128) -> dict[str, Tensor]:
    """A weight (m, n) rounded to the nearest of 16 levels in each block, from its smallest to its largest number.

    0 is one of the levels, as the format has it. So a block whose numbers all have one sign has levels from 0 on.
    """
    weight = checks.as_tensor("weight", weight).detach()
    size = checks.integer("size", size, at_least=1)
    if weight.ndim != 2 or len(weight) % 8 or weight.shape[1] % size:
        got, hint = f"shape {tuple(weight.shape)}", "try padding the weight, or leave this module as it is"
        raise ArgumentError("weight", f"a multiple of 8 rows, of {size} columns", got, hint)
    checks.finite("weight", weight)
    m, n = weight.shape
    blocks = weight.float().reshape(m, n // size, size)
    # A zero point is a 4-bit number as well: a block that does not reach 0 has to be extended to it.
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    if not bool((high - low <= LARGEST * GREATEST).all()):
        expected = (
            f"blocks whose numbers lie within {LARGEST * GREATEST:.0f}, since a scale is a float16 number"
        )
        raise ArgumentError("weight", expected, f"{float((high - low).max()):.3g}", "try a smaller unit")
    scales = ((high - low).clamp(min=1e-5) / LARGEST).half()
    zeros = (-low / scales).round().clamp(0, LARGEST)
    codes = ((blocks / scales[..., None]).round() + zeros[..., None]).clamp(0, LARGEST)
    return {
        f"{name}.qweight": _pack(codes.reshape(m, n).T),
        f"{name}.qzeros": _pack(zeros.T),
        f"{name}.scales": scales.T.contiguous(),
    }


def _pack(codes: Tensor) -> Tensor:
    """Eight columns per int32."""
    eight = codes.long().reshape(len(codes), -1, 8)[..., list(ORDER)]
    packed = (eight << torch.arange(0, 32, 4, device=codes.device)).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()  # as the bits of a signed number


def _unpack(packed: Tensor) -> Tensor:
    """Undo `_pack`."""
    eight = (packed.long()[..., None] >> torch.arange(0, 32, 4, device=packed.device)) & LARGEST
    return eight[..., np.argsort(ORDER).tolist()].flatten(1)
