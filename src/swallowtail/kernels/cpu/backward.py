"""The CPU's backward pass: walk (y, grad) back through the rotation, rebuilding activations, and sum wedge products.

An angle's gradient is the wedge product g_j·y_i − g_i·y_j of its two coordinates. Walking to the basis with fast Givens
steps, both vectors lack their scales S (see `coefficients`), so their wedge product lacks S_i·S_j: one factor for each
rotation, W, put in once at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from swallowtail.kernels import scaled
from swallowtail.kernels.cpu import butterfly as cpu_butterfly
from swallowtail.kernels.cpu import pairs as cpu_pairs
from swallowtail.kernels.cpu.coefficients import (
    Coefficients,
    Prepared,
    Spare,
    aligned,
    in_arithmetic,
    plan_of,
    prepare,
    tile,
)
from swallowtail.kernels.cpu.mend import mender_of
from swallowtail.kernels.cpu.plan import program
from swallowtail.kernels.cpu.threads import WORTH_A_THREAD, over_rows
from swallowtail.wiring import Butterfly, Pairs, Wiring

LONG_SUM = 4096  # rows
IN_KERNEL = 512  # rows summed in the kernel's dtype, the rest in float64
Addresses = tuple[int, int, int]  # of y, grad and grad_x, each (m, n)
# Of m rows; adds to the gradient of the angles, and returns the floating-point flags that were raised.
Walk = Callable[[Addresses, int, np.ndarray], int]


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ for x and the angles, from y = Q x: the activations are rebuilt.

    ``prepared`` is what `prepare_training` made for the same angles. One rotation may come as angles (K,) with vectors
    (*batch, n).
    """
    storage, y, grad = y.dtype, in_arithmetic(y).contiguous(), in_arithmetic(grad).contiguous()
    single, angles = angles.ndim == 1, in_arithmetic(angles)
    reverse = isinstance(wiring, Butterfly) and wiring.reverse
    # Walking from the basis, vectors carry the scales instead of lacking them. Small gradients would underflow: plain.
    fast = isinstance(wiring, Butterfly) and transpose == reverse
    if not fast or prepared is None or prepared[0].W is None:
        prepared = prepare(wiring, torch.atleast_2d(angles), fast=fast, training=True)
    grad_x = torch.empty_like(grad)
    grad_angles, flags = _walk(prepared, y, grad, grad_x, transpose != reverse)
    result = torch.from_numpy(grad_angles)
    if flags:
        result = _mend(prepared, flags, (y, grad, grad_x), result, transpose)
    result = result[0] if single else result
    if reverse:
        result = -result[..., torch.from_numpy(wiring.T.transpose_order)]
    grad_x = grad_x if grad_x.dtype is storage else grad_x.to(storage)
    return grad_x, result if result.dtype is angles.dtype else result.to(angles.dtype)


def _mend(
    prepared: Prepared,
    flags: int,
    vectors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    grad_angles: torch.Tensor,
    transpose: bool,
) -> torch.Tensor:
    """Look at the gradients of vectors (y, grad, grad_x), and do again in float64 and the plain form what may be wrong.

    Returns the gradient of the angles in forward form, (B, K).
    """
    B, n = len(prepared), prepared[0].origin.wiring.n
    reverse, result = prepared[0].origin.reverse, grad_angles.double()
    batches = zip(*(v.view(B, -1, n) for v in vectors), strict=True)
    for b, (y, grad, grad_x) in enumerate(batches):
        mender = mender_of(prepared[b])
        mender.mend("from_basis" if transpose else "to_basis", flags, grad, grad_x)
        if not mender.suspects_products(flags, y, grad, grad_angles[b]):
            continue
        z, g = y[None].double(), grad[None].double()
        a, common = scaled.outer_exponents(z, g)
        z, g = scaled.shift(z, -a), scaled.shift(g, a - common)
        again, _ = _walk(mender.plain(), z, g, torch.empty_like(g), transpose != reverse)
        result[b] = scaled.shift(torch.from_numpy(again), common[:, 0])[0]
    return result


def _walk(
    prepared: Prepared,
    y: torch.Tensor,
    grad: torch.Tensor,
    grad_x: torch.Tensor,
    transpose: bool,
) -> tuple[np.ndarray, int]:
    """Fill grad_x; returns the gradient of the angles in forward form, (B, K), and the flags raised."""
    forward = prepared[0].origin.wiring
    batch, n = len(prepared), forward.n
    m = y.numel() // (batch * n)
    # Long sums are worth float64; short ones are not worth a gradient of twice the size.
    sums = np.float64 if m > LONG_SUM else prepared[0].T.dtype
    out = np.zeros((batch, forward.n_rotations), sums)
    flags, apart = 0, m * n * y.itemsize
    for b, c in enumerate(prepared):
        walk: Walk | None = c.bound.get(("backward", transpose))
        if walk is None:
            bind: Any = _butterfly if isinstance(forward, Butterfly) else _pairs
            walk = c.bound["backward", transpose] = bind(forward, c, transpose)
        at = (y.data_ptr() + b * apart, grad.data_ptr() + b * apart, grad_x.data_ptr() + b * apart)
        flags |= walk(at, m, out[b])
    return out, flags


@lru_cache(maxsize=1024)
def _program(wiring: Butterfly, number: np.dtype, transpose: bool, plain: bytes) -> np.ndarray:
    """Backward passes are shorter than forward ones; one that touches a plain forward pass is plain."""
    forward, plan = plan_of(wiring, number), plan_of(wiring, number, backward=True)
    layers = np.zeros(len(plan.strides), np.bool_)
    for p, flag in zip(forward.passes, np.frombuffer(plain, np.bool_), strict=True):
        layers[p.layer :] = flag
    ends = [p.layer for p in plan.passes[1:]] + [len(layers)]
    flags = np.array([layers[p.layer : end].any() for p, end in zip(plan.passes, ends, strict=True)])
    return program(plan, "from_basis wedge" if transpose else "to_basis wedge", flags, not transpose, 2)


def _butterfly(wiring: Butterfly, c: Coefficients, transpose: bool) -> Walk:
    number, n, k = c.T.dtype, wiring.n, wiring.n_rotations
    plan, row = plan_of(wiring, number), n * number.itemsize
    kernel: Any = cpu_butterfly.from_basis_wedge if transpose else cpu_butterfly.to_basis_wedge
    program = _program(wiring, number, transpose, c.plain.tobytes())
    fixed = (
        n,
        program.ctypes.data,
        len(program),
        c.T,
        c.P,
        c.stored_S,
        c.W,
        plan.strides,
        -1.0 if transpose else 1.0,
    )
    layers, scratch = len(c.T), cpu_butterfly.ROWS_PER_WEDGE
    spare = Spare(lambda: aligned((layers + scratch, plan.padded), number))

    def rows(at: Addresses, start: int, stop: int, total: np.ndarray, alive: Any = program) -> int:
        flags, room = 0, spare.lend()
        y, grad, grad_x = at
        for first in range(start, stop, IN_KERNEL):
            at_row, count = first * row, min(IN_KERNEL, stop - first)
            flags |= kernel(
                y + at_row, grad + at_row, grad_x + at_row, count, *fixed, room[:layers], room[layers:], total
            )  # fmt: skip
        spare.give_back(room)
        return flags

    def walk(at: Addresses, m: int, out: np.ndarray) -> int:
        if m <= IN_KERNEL and m * k < 2 * WORTH_A_THREAD:
            return rows(at, 0, m, out)

        def part(start: int, stop: int) -> tuple[np.ndarray, int]:
            total = np.zeros(k)
            return total, rows(at, start, stop, total)

        return _add_up(over_rows(part, m, k), out)

    return walk


def _pairs(wiring: Pairs, c: Coefficients, transpose: bool) -> Walk:
    number, n, k = c.T.dtype, wiring.n, wiring.n_rotations
    row, kernel = n * number.itemsize, cast(Any, cpu_pairs.run_wedge)
    pairs, T, P = wiring.indices, c.T, c.P

    def walk(at: Addresses, m: int, out: np.ndarray) -> int:
        def rows(start: int, stop: int) -> tuple[np.ndarray, int]:
            total = np.zeros(k)
            y, g = (tile(n, number, stop - start) for _ in range(2))
            addresses = (address + start * row for address in at)
            flags = kernel(*addresses, stop - start, n, transpose, pairs, T, P, y, g, total)
            return -total if transpose else total, flags

        return _add_up(over_rows(rows, m, k), out)

    return walk


def _add_up(parts: list[tuple[np.ndarray, int]], out: np.ndarray) -> int:
    flags = 0
    for total, raised in parts:
        out += total
        flags |= raised
    return flags
