"""Sums Σ g yᵀ over vectors y and their gradients g, and the gradients of angles that follow from them.

Gradients of angles depend on the vectors through these sums only: one matrix per block of coordinates.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.group_plan import TRITON_SIZE
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.backward import collect_kernel
from swallowtail.kernels.gpu.triton.sweeps import angle_gradients_kernel

BLOCK = 64  # numbers per program that adds up their parts
PARTS = 8  # that it loads at a time
# The vectors are cut into so many, whose products are made side by side: PyTorch's own way to share them out is slower.
PIECES = 32
GRADIENT_ROWS = 8  # of a block's matrix per program that sweeps through the rotations


def products(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """gᵀ y of each of a batch of rows, in float32, by PyTorch."""
    with torch.no_grad():
        if y.is_cuda and y.itemsize == 2:
            return torch.bmm(grad.mT, y, out_dtype=torch.float32)
        return torch.bmm(grad.mT.float(), y.float())


def whole_products(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """gᵀ y of many rows, (1, m, n), in float32: (1, n, n)."""
    m, n = y.shape[1:]
    full = m // PIECES * PIECES
    pieces = lambda t: t[0, :full].view(PIECES, -1, n)
    total = products(pieces(grad), pieces(y)).sum(0, keepdim=True)
    return total if full == m else total.add_(products(grad[:, full:], y[:, full:]))


def added(parts: torch.Tensor) -> torch.Tensor:
    """The sum over the first axis, which stays; always in the same order."""
    total = torch.empty_like(parts[:1])
    count = total.numel()
    launch(
        collect_kernel, (-(-count // BLOCK), 1), parts, _numbers(count, parts.device), total, count, count,
        len(parts), SIGN=1, SLOTS=min(PARTS, _power_of_two(len(parts))), BLOCK=BLOCK, warps=4,
    )  # fmt: skip
    return total


def angle_gradients(
    partner: torch.Tensor, angle: torch.Tensor, angles: torch.Tensor, sums: torch.Tensor, transpose: bool
) -> torch.Tensor:
    """Gradients (1, K) from Σ g yᵀ in parts, (parts, blocks, size, size), for contiguous angles (1, K).

    Partners and angles are those of `group_plan.GroupPlan`, on the device.
    """
    count, (blocks, size) = angles.shape[1], sums.shape[1:3]
    slabs = size // GRADIENT_ROWS
    parts = torch.empty(slabs, count, dtype=torch.float32, device=sums.device)
    launch(
        angle_gradients_kernel, (blocks, slabs), angles, partner, angle, sums, parts,
        len(partner), blocks, len(sums), count, TRANSPOSE=transpose, SIZE=size, ROWS=GRADIENT_ROWS,
        warps=8 if size > TRITON_SIZE else 4,
    )  # fmt: skip
    return added(parts)


@cache  # never dropped: recorded launches go on reading it
def _numbers(count: int, where: torch.device) -> torch.Tensor:
    """From 1 to ``count``: every number stands in its own place."""
    return device.constant(np.arange(1, count + 1, dtype=np.int32), where)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
