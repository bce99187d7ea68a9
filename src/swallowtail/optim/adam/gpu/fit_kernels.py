"""Triton kernels that fit dense groups: a step of orthogonal iteration, for the groups whose numbers say so.

The tables are those of `group_kernels`. New matrices and products are (groups, SIZE, SIZE), groups in their order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.optim.adam.gpu.group_kernels import (
    FIT,
    GROUP_ROW,
    GROUP_SIZE,
    GROUP_WIDTH,
    MOMENTS,
    N_NUMBERS,
    OWN,
    USED,
    load_tile,
    store_tile,
)
from swallowtail.optim.adam.state import SHIFT

SHIFT_BY = tl.constexpr(SHIFT)


@triton.jit
def _fits(group_ptr, numbers_ptr, FURTHER: tl.constexpr):
    """Whether a group is fitted in this step; FURTHER: for the first time, which takes several iterations."""
    numbers_ptr += tl.load(group_ptr + GROUP_ROW) * N_NUMBERS
    fit = tl.load(numbers_ptr + FIT) * tl.load(numbers_ptr + USED)
    return (fit == 2) if FURTHER else (fit > 0)


@triton.jit
def _columns(ptr, first, rows, columns, length, SIZE: tl.constexpr, COLS: tl.constexpr):
    """COLS columns of a matrix (rows, columns), from column ``first`` on: addresses, and which of them exist."""
    r, c = tl.arange(0, SIZE), first + tl.arange(0, COLS)
    return ptr + r[:, None] * length + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]


@triton.jit
def multiply_kernel(
    groups_ptr, moments_ptr, new_ptr, out_ptr, group_ptr, numbers_ptr,
    FURTHER: tl.constexpr, SIZE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Moments and a little of the identity, times a group's matrix: its own, or the new one (FURTHER).

    ``new`` and ``out`` are (groups, SIZE, SIZE). A program makes COLS columns, as exact as float32: in TF32 small
    eigenvalues would drown.
    """
    g, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLS
    group_ptr += g * GROUP_WIDTH
    if _fits(group_ptr, numbers_ptr, FURTHER):
        s = tl.load(group_ptr + GROUP_SIZE).to(tl.int32)
        C = load_tile(moments_ptr + tl.load(group_ptr + MOMENTS), s, s, s, SIZE, False)
        i = tl.arange(0, SIZE)
        diagonal = i[:, None] == i[None, :]
        shift = SHIFT_BY * tl.sum(tl.sum(tl.where(diagonal, C, 0.0), axis=1), axis=0) / s
        C += tl.where(diagonal & (i < s)[:, None], shift, 0.0)
        if FURTHER:
            at, some = _columns(new_ptr + g * (SIZE * SIZE), first, s, s, SIZE, SIZE, COLS)
        else:
            at, some = _columns(groups_ptr + tl.load(group_ptr + OWN), first, s, s, s, SIZE, COLS)
        product = tl.dot(C, tl.load(at, mask=some, other=0.0), input_precision="tf32x3")
        at, some = _columns(out_ptr + g * (SIZE * SIZE), first, s, s, SIZE, SIZE, COLS)
        tl.store(at, product, mask=some)


@triton.jit
def change_kernel(
    groups_ptr, new_ptr, change_ptr, group_ptr, numbers_ptr, SIZE: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Q_oldᵀ Q_new of every group, (groups, SIZE, SIZE)."""
    g, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLS
    group_ptr += g * GROUP_WIDTH
    if _fits(group_ptr, numbers_ptr, False):
        s = tl.load(group_ptr + GROUP_SIZE).to(tl.int32)
        old = load_tile(groups_ptr + tl.load(group_ptr + OWN), s, s, s, SIZE, False)
        at, some = _columns(new_ptr + g * (SIZE * SIZE), first, s, s, SIZE, SIZE, COLS)
        new = tl.load(at, mask=some, other=0.0)
        change = tl.dot(tl.trans(old), new, input_precision="tf32x3")
        at, some = _columns(change_ptr + g * (SIZE * SIZE), first, s, s, SIZE, SIZE, COLS)
        tl.store(at, change, mask=some)


@triton.jit
def replace_kernel(
    groups_ptr, new_ptr, group_ptr, numbers_ptr, SIZE: tl.constexpr
):  # fmt: skip
    """A group's matrix becomes the new one."""
    g = tl.program_id(0).to(tl.int64)
    group_ptr += g * GROUP_WIDTH
    if _fits(group_ptr, numbers_ptr, False):
        s = tl.load(group_ptr + GROUP_SIZE).to(tl.int32)
        new = load_tile(new_ptr + g * (SIZE * SIZE), s, s, SIZE, SIZE, False)
        store_tile(groups_ptr + tl.load(group_ptr + OWN), new, s, s, s, SIZE, False)


@triton.jit
def householder_kernel(
    x_ptr, q_ptr, group_ptr, numbers_ptr, FURTHER: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """Q of the QR decomposition of x (groups, SIZE, SIZE), by Householder reflections.

    R has no negative diagonal entry. Reflections are orthogonal whatever x is; a column of zeros is reflected nowhere.
    `orthogonal.gram_schmidt_kernel` does the same in a tenth of the time, where it can run.
    """
    group_ptr += tl.program_id(0) * GROUP_WIDTH
    if _fits(group_ptr, numbers_ptr, FURTHER):
        s = tl.load(group_ptr + GROUP_SIZE).to(tl.int32)
        i = tl.arange(0, SIZE)
        first = tl.program_id(0).to(tl.int64) * (SIZE * SIZE)
        x = load_tile(x_ptr + first, s, s, SIZE, SIZE, False)
        largest = tl.max(tl.max(tl.abs(x), axis=1), axis=0)
        x = x / tl.where(largest > 0, largest, 1.0)  # squares of small moments would underflow
        turned = tl.where(
            i[:, None] == i[None, :], 1.0, 0.0
        )  # Qᵀ: its sums go along the same axis as those of x
        sign = tl.full((SIZE,), 1.0, tl.float32)
        for step in range(s):
            v = tl.sum(tl.where(i[None, :] == step, x, 0.0), axis=1)
            v = tl.where(i >= step, v, 0.0)
            head = tl.sum(tl.where(i == step, v, 0.0), axis=0)
            length = tl.sqrt(tl.sum(v * v, axis=0))
            v += tl.where(i == step, tl.where(head < 0, -length, length), 0.0)
            square = 2 * length * (length + tl.abs(head))  # of the new v
            factor = tl.where(square > 0, 2 / tl.where(square > 0, square, 1.0), 0.0)
            x -= v[:, None] * (factor * tl.sum(v[:, None] * x, axis=0))[None, :]
            turned -= v[:, None] * (factor * tl.sum(v[:, None] * turned, axis=0))[None, :]
            sign = tl.where(i == step, tl.where(head < 0, 1.0, tl.where(square > 0, -1.0, 1.0)), sign)
        store_tile(q_ptr + first, tl.trans(turned * sign[:, None]), s, s, SIZE, SIZE, False)
