"""Block-diagonal rotations on the GPU: one small matrix per group, products on tensor cores, and their gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.gradient_sums import angle_gradients, products
from swallowtail.kernels.gpu.group_plan import TRITON_SIZE, GroupPlan, group_plan
from swallowtail.kernels.gpu.group_tables import MadeGroups
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.block_diagonal import (
    block_diagonal_backward_kernel,
    block_diagonal_kernel,
)
from swallowtail.wiring import Wiring

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Tile(NamedTuple):
    """What a program takes."""

    rows: int  # vectors
    warps: int
    stages: int  # tiles on their way from memory
    programs: int  # per multiprocessor


# The fastest on an H200 of those compared, with 2^27 numbers in groups of 128. In copies of the vectors: products 1.28
# in bf16, 2.5 in three parts of float32, 1.06 in one; gradients in half precision 1.8.
HALF_PRODUCT = Tile(128, 8, 4, 1)
FLOAT_PRODUCTS = {"tf32x3": Tile(64, 4, 2, 3), "tf32": Tile(64, 4, 3, 2)}
HALF_BACKWARD, FLOAT_BACKWARD = Tile(64, 8, 3, 1), Tile(64, 8, 2, 1)


def takes(dtype: torch.dtype, where: torch.device) -> bool:
    """Whether these kernels take vectors of a dtype on a device."""
    return dtype in DTYPES and device.multiplies_blocks(where, dtype)


def suits(wiring: Wiring, angles: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether they take one rotation, angles (1, K), of vectors of a dtype."""
    return len(angles) == 1 and takes(dtype, angles.device) and group_plan(wiring, dtype) is not None


def apply(made: MadeGroups, x: torch.Tensor, transpose: bool) -> torch.Tensor:
    """The made matrices, or their transposes, times x (1, m, n)."""
    if made.layout.plan.size > TRITON_SIZE:
        return _apply_by_pytorch(made, x, transpose)
    x = x.contiguous()
    y = torch.empty_like(x)
    plan, precision = made.layout.plan, device.float32_products()
    tile = HALF_PRODUCT if x.itemsize == 2 else FLOAT_PRODUCTS[precision]
    rows, n = x.shape[1:]
    tiles, workers = _share(x, plan, tile)
    factor = made.matrices if made.gain is None else made.gain  # a kernel needs some pointer
    launch(
        block_diagonal_kernel, (plan.n_blocks * workers,), x, y, made.matrices, made.layout.starts, factor,
        rows, n // plan.unit, plan.n_blocks, tiles, workers,
        TRANSPOSE=transpose, GAIN=made.gain is not None, EVEN=plan.even, UNIT=plan.unit, SIZE=plan.size,
        ROWS=tile.rows, STAGES=tile.stages, PRECISION=precision, warps=tile.warps,
    )  # fmt: skip
    return y


def walk_back(
    made: MadeGroups, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x (1, m, n) and the angles (1, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous.

    The angle gradients follow from one small matrix per block, Σ g yᵀ over all vectors, in float32. Sums are taken in a
    fixed order.
    """
    grad = grad.to(y.dtype)
    layout, plan = made.layout, made.layout.plan
    if plan.size > TRITON_SIZE or (y.itemsize == 4 and plan.rest >= 0):
        # Tensor cores take no transposed float32 factors. PyTorch's product is faster than exchanging them.
        sums = _sums_by_pytorch(plan, y, grad)
        grad_x = apply(made, grad, not transpose)
    else:
        grad_x, sums = _backward(made, y, grad, transpose)
    return grad_x, angle_gradients(layout.partner, layout.angle, made.angles, sums, transpose)


def _columns(plan: GroupPlan, x: torch.Tensor) -> torch.Tensor:  # shape: (blocks, m, size)
    """The blocks of x (1, m, n); one that is not full keeps its length."""
    return x.view(x.shape[1], plan.n_blocks, -1).transpose(0, 1)


def _apply_by_pytorch(made: MadeGroups, x: torch.Tensor, transpose: bool) -> torch.Tensor:
    plan, x = made.layout.plan, x.contiguous()
    length = x.shape[2] // plan.n_blocks
    matrices = made.matrices[:, :length, :length]
    y = torch.empty_like(x)
    with torch.no_grad():
        torch.bmm(_columns(plan, x), matrices if transpose else matrices.mT, out=_columns(plan, y))
        return y if made.gain is None else y.mul_(made.gain)  # in float32: fp16 may not hold it


def _sums_by_pytorch(plan: GroupPlan, y: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Σ g yᵀ of every block in float32, (1, blocks, size, size); only the last block may be shorter."""
    if not plan.rest:
        return products(_columns(plan, grad), _columns(plan, y))[None]
    sums = torch.zeros(plan.n_blocks, plan.size, plan.size, dtype=torch.float32, device=y.device)
    full = y.shape[2] - plan.rest
    if full:
        columns = lambda t: t[0, :, :full].unflatten(1, (-1, plan.size)).transpose(0, 1)
        sums[:-1] = products(columns(grad), columns(y))
    sums[-1:, : plan.rest, : plan.rest] = products(grad[:, :, full:], y[:, :, full:])
    return sums[None]


def _backward(
    made: MadeGroups, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient for x, and Σ g yᵀ in parts, (parts, blocks, size, size)."""
    grad_x = torch.empty_like(y)
    layout, plan = made.layout, made.layout.plan
    tile = HALF_BACKWARD if y.itemsize == 2 else FLOAT_BACKWARD
    rows, n = y.shape[1:]
    tiles, workers = _share(y, plan, tile)
    sums = torch.empty(workers, plan.n_blocks, plan.size, plan.size, dtype=torch.float32, device=y.device)
    launch(
        block_diagonal_backward_kernel, (plan.n_blocks * workers,), y, grad, grad_x, made.matrices, layout.starts,
        sums, rows, n // plan.unit, plan.n_blocks, tiles, workers,
        TRANSPOSE=transpose, EVEN=plan.even, UNIT=plan.unit, SIZE=plan.size, ROWS=tile.rows, STAGES=tile.stages,
        PRECISION=device.float32_products(), warps=tile.warps,
    )  # fmt: skip
    return grad_x, sums


def _share(x: torch.Tensor, plan: GroupPlan, tile: Tile) -> tuple[int, int]:
    """Tiles of the vectors, and programs per block."""
    tiles = -(-x.shape[1] // tile.rows)
    programs = device.multiprocessors(x.device) * tile.programs
    return tiles, min(tiles, max(1, programs // plan.n_blocks))
