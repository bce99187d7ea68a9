"""The CPU's backward pass: walk (y, grad) back through the rotation, rebuilding activations, and sum wedge products.

An angle's gradient is the wedge product g_j·y_i − g_i·y_j of its two coordinates. Walking down with fast Givens
steps both vectors lack the scales S of `cpu_butterfly`, so their wedge product lacks S_i·S_j: one factor for each
rotation, put in once at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from swallowtail.kernels import cpu_butterfly, cpu_pairs
from swallowtail.kernels._threads import over_rows
from swallowtail.kernels.cpu_coefficients import (
    Coefficients,
    Prepared,
    aligned,
    in_arithmetic,
    plan_of,
    prepare,
    tile,
)
from swallowtail.kernels.cpu_plan import program
from swallowtail.wiring import Butterfly, Pairs, Wiring

LONG_SUM = 4096  # rows
IN_KERNEL = 512  # rows summed in the kernel's dtype, the rest in float64
Batches = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # y, grad and grad_x, each (m, n)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ for x and the angles, from y = Q x: the activations are rebuilt.

    ``prepared`` is what `prepare_training` made for the same angles.
    """
    storage, y, grad = y.dtype, in_arithmetic(y).contiguous(), in_arithmetic(grad).contiguous()
    angles = in_arithmetic(angles)
    reverse = isinstance(wiring, Butterfly) and wiring.reverse
    # Walking up, vectors carry the scales instead of lacking them, and small gradients would underflow: plain.
    fast = isinstance(wiring, Butterfly) and transpose == reverse
    if not fast or prepared is None or prepared[0].wedge is None:
        prepared = prepare(wiring, angles, fast=fast, training=True)
    grad_x = torch.empty_like(grad)
    grad_angles = _walk(wiring, prepared, (y, grad, grad_x), transpose != reverse)
    if (
        fast and not np.isfinite(grad_angles).all()
    ):  # out of the scaled form's range, if not of the plain one's
        prepared = prepare(wiring, angles, fast=False, training=True)
        grad_angles = _walk(wiring, prepared, (y, grad, grad_x), transpose != reverse)
    result = torch.from_numpy(grad_angles)
    if reverse:
        result = -result[:, torch.from_numpy(wiring.T.transpose_order)]
    return grad_x.to(storage), result.to(angles.dtype)


def _walk(wiring: Wiring, prepared: Prepared, batches: Batches, transpose: bool) -> np.ndarray:
    """Fill grad_x; returns the gradient of the angles in forward form, (B, K)."""
    y = batches[0]
    forward = wiring.T if isinstance(wiring, Butterfly) and wiring.reverse else wiring
    # Long sums are worth float64; short ones are not worth a gradient of twice the size.
    sums = np.float64 if y.shape[1] > LONG_SUM else prepared[0].T.dtype
    out = np.zeros((len(y), wiring.n_rotations), sums)
    wedge: Any = _butterfly if isinstance(forward, Butterfly) else _pairs
    for b, c in enumerate(prepared):
        wedge(forward, c, tuple(batch[b] for batch in batches), transpose, out[b])
    return out


@lru_cache(maxsize=1024)
def _program(wiring: Butterfly, number: np.dtype, transpose: bool, plain: bytes) -> np.ndarray:
    """Backward passes are shorter than forward ones; one that touches a plain forward pass is plain."""
    forward, plan = plan_of(wiring, number), plan_of(wiring, number, backward=True)
    layers = np.zeros(len(plan.strides), np.bool_)
    for p, flag in zip(forward.passes, np.frombuffer(plain, np.bool_), strict=True):
        layers[p.layer :] = flag
    ends = [p.layer for p in plan.passes[1:]] + [len(layers)]
    flags = np.array([layers[p.layer : end].any() for p, end in zip(plan.passes, ends, strict=True)])
    return program(plan, "up wedge" if transpose else "down wedge", flags, not transpose, 2)


def _butterfly(
    wiring: Butterfly, c: Coefficients, batches: Batches, transpose: bool, out: np.ndarray
) -> None:
    number, n = c.T.dtype, wiring.n
    plan = plan_of(wiring, number)
    kernel = cpu_butterfly.up_wedge if transpose else cpu_butterfly.down_wedge
    program = _program(wiring, number, transpose, c.plain.tobytes())
    row = n * number.itemsize
    pointers = [batch.data_ptr() for batch in batches]
    sign = -1.0 if transpose else 1.0

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        for first in range(start, stop, IN_KERNEL):
            room = aligned((len(c.T) + 4, plan.padded), number)
            accumulator, scratch = room[:-4], room[-4:]
            accumulator[:] = 0
            at = [p + first * row for p in pointers]
            count = min(IN_KERNEL, stop - first)
            kernel(*at, count, n, program, c.T, c.P, c.scale_stored, accumulator, scratch)
            cpu_butterfly.collect(accumulator, plan.strides, n, sign, c.wedge, total)
        return total

    for total in over_rows(rows, len(batches[0]), wiring.n_rotations):
        out += total


def _pairs(wiring: Pairs, c: Coefficients, batches: Batches, transpose: bool, out: np.ndarray) -> None:
    number, n = c.T.dtype, wiring.n
    row = n * number.itemsize
    pointers = [batch.data_ptr() for batch in batches]
    kernel = cast(Any, cpu_pairs.run_wedge)

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        at = [p + start * row for p in pointers]
        y, g = (tile(n, number, stop - start) for _ in range(2))
        kernel(*at, stop - start, n, transpose, wiring.pairs, c.T, c.P, y, g, total)
        return total

    for total in over_rows(rows, len(batches[0]), wiring.n_rotations):
        out += -total if transpose else total
