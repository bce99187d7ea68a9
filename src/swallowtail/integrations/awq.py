"""4-bit weights, packed as AWQ packs them; ParoQuant's checkpoints hold their weights so.

A weight (m, n) is rounded in blocks of ``size`` columns. It is stored as ``qweight`` (n, m/8) and ``qzeros``
(n/size, m/8), eight 4-bit numbers per int32, and ``scales`` (n/size, m).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.errors import ArgumentError

LARGEST = 15  # of a 4-bit number
GREATEST = torch.finfo(torch.float16).max
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight neighbouring columns an int32 holds, lowest bits first
_OTHER = "try a checkpoint packed as AWQ does it: GPTQ and others store the same names in other shapes"


def dequantise(tensors: Mapping[str, Tensor], name: str) -> Tensor:  # shape: (m, n)
    """The weight of the module ``name`` in float32, from its ``qweight``, ``qzeros`` and ``scales``."""
    missing = [part for part in ("qweight", "qzeros", "scales") if f"{name}.{part}" not in tensors]
    if missing:
        there = sorted(key.removesuffix(".qweight") for key in tensors if key.endswith(".qweight"))
        hint = f"try {there[0]!r}" if there else "no weight here is quantised: a folder may hold more files"
        raise ArgumentError(
            "name", "a module with qweight, qzeros and scales", f"no {name}.{missing[0]}", hint
        )
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
        raise ArgumentError(name, expected, ", ".join(map(str, shapes)), _OTHER)
    if weight.dtype != torch.int32 or zero.dtype != torch.int32 or not scales.dtype.is_floating_point:
        got = f"{weight.dtype}, {zero.dtype} and {scales.dtype}"
        raise ArgumentError(name, "qweight and qzeros of int32, real scales", got, _OTHER)
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
