"""Triton kernels of GivensAdam's dense groups: a step in three, the moments of groups, QR decompositions.

A program multiplies tiles of vectors by the matrix of one group, on tensor cores in TF32: gradients are noisier than
its 10 bits. It takes ``tiles`` tiles in turn, so that it loads its block once. ``s`` is the size of the groups, k their
number on that side; SIZE is s rounded up to a power of two.

The last axis of the grid is the matrix of the stack, ``b``. Each matrix has tensors of its own: rows of ``offsets_ptr``
say how many entries beyond those of the first matrix they begin. ``numbers_ptr``, ``new1``, ``kept2`` and ``new2`` are
as in `kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.optim.adam.gpu.kernels import BOUND, EPS, FACTOR, KEPT, LR, USED

OFFSETS = 3  # per matrix: of what is written below
PARAMETER, FIRST_MOMENT, SECOND_MOMENT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
GROUP_MOMENTS = tl.constexpr(0)
ALIGNMENT = 16  # all offsets are multiples of this many entries
N_OFFSETS, ALIGNED_TO = tl.constexpr(OFFSETS), tl.constexpr(ALIGNMENT)
STAGES = tl.constexpr(1)  # loads that run ahead would need more shared memory than there is


@triton.jit
def _owned(first_ptr, offsets_ptr, b, WHICH: tl.constexpr):
    """Matrix b's own tensor, found from that of the stack's first matrix."""
    # The hint is kept by offsets, not by addresses; without it every entry is loaded on its own.
    return first_ptr + tl.multiple_of(tl.load(offsets_ptr + b * N_OFFSETS + WHICH), ALIGNED_TO)


@triton.jit
def _block(blocks_ptr, b, k, group, s, SIZE: tl.constexpr):
    a = tl.arange(0, SIZE)
    mask = (a < s)[:, None] & (a < s)[None, :]
    return tl.load(blocks_ptr + (b * k + group) * s * s + a[:, None] * s + a[None, :], mask=mask, other=0.0)


@triton.jit
def right_groups_kernel(g_ptr, blocks_ptr, x_ptr, m, n, s, k, tiles, SIZE: tl.constexpr, TILE: tl.constexpr):
    """x = (G Q_R)ᵀ for G (B, m, n) and x (B, n, m)."""
    begin, group, b = tl.program_id(0) * tiles, tl.program_id(1), tl.program_id(2).to(tl.int64)
    a = tl.arange(0, SIZE)
    columns = (group * s + a).to(tl.int64)
    block = _block(blocks_ptr, b, k, group, s, SIZE)
    for tile in tl.range(begin, begin + tiles, num_stages=STAGES):
        rows = (tile * TILE + tl.arange(0, TILE)).to(tl.int64)
        mask = (rows < m)[:, None] & (a < s)[None, :]
        g = tl.load(g_ptr + b * m * n + rows[:, None] * n + columns[None, :], mask=mask, other=0.0)
        z = tl.dot(g, block, input_precision="tf32")
        tl.store(x_ptr + b * m * n + columns[None, :] * m + rows[:, None], z, mask=mask)


@triton.jit
def adam_groups_kernel(
    x_ptr, y_ptr, first_ptr, second_ptr, offsets_ptr, blocks_ptr, numbers_ptr, m, n, s, k, tiles, new1, kept2, new2,
    SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """y = Adam(x Q_L) Q_Lᵀ for x and y (B, n, m); the moments, laid out alike, move on in place."""
    begin, group, b = tl.program_id(0) * tiles, tl.program_id(1), tl.program_id(2).to(tl.int64)
    a = tl.arange(0, SIZE)
    block = _block(blocks_ptr, b, k, group, s, SIZE)
    used = tl.load(numbers_ptr + USED) > 0
    eps, factor = tl.load(numbers_ptr + EPS).to(tl.float32), tl.load(numbers_ptr + FACTOR).to(tl.float32)
    bound = tl.load(numbers_ptr + BOUND).to(tl.float32)
    firsts = _owned(first_ptr, offsets_ptr, b, FIRST_MOMENT)
    seconds = _owned(second_ptr, offsets_ptr, b, SECOND_MOMENT)
    for tile in tl.range(begin, begin + tiles, num_stages=STAGES):
        rows = (tile * TILE + tl.arange(0, TILE)).to(tl.int64)
        mask = (rows < n)[:, None] & (a < s)[None, :]
        at = rows[:, None] * m + (group * s + a)[None, :]
        z = tl.dot(tl.load(x_ptr + b * m * n + at, mask=mask, other=0.0), block, input_precision="tf32")
        first = tl.load(firsts + at, mask=mask, other=0.0)
        first = tl.where(used, first + new1 * (z - first), first)
        tl.store(firsts + at, first, mask=mask)
        second = tl.load(seconds + at, mask=mask, other=0.0)
        second = tl.where(used, kept2 * second + new2 * z * z, second)
        tl.store(seconds + at, second, mask=mask)
        update = factor * first / (tl.sqrt(second) + eps)
        update = tl.where(mask, tl.minimum(tl.maximum(update, -bound), bound), 0.0)
        y = tl.dot(update, tl.trans(block), input_precision="tf32")
        tl.store(y_ptr + b * m * n + at, y, mask=mask)


@triton.jit
def update_groups_kernel(
    y_ptr, new_ptr, p_ptr, offsets_ptr, blocks_ptr, numbers_ptr, m, n, s, k, tiles,
    SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """new = kept · p − lr · yᵀ Q_Rᵀ for y (B, n, m); new and p (B, m, n)."""
    begin, group, b = tl.program_id(0) * tiles, tl.program_id(1), tl.program_id(2).to(tl.int64)
    a = tl.arange(0, SIZE)
    columns = (group * s + a).to(tl.int64)
    block = _block(blocks_ptr, b, k, group, s, SIZE)
    lr, kept = tl.load(numbers_ptr + LR).to(tl.float32), tl.load(numbers_ptr + KEPT).to(tl.float32)
    parameters = _owned(p_ptr, offsets_ptr, b, PARAMETER)
    for tile in tl.range(begin, begin + tiles, num_stages=STAGES):
        rows = (tile * TILE + tl.arange(0, TILE)).to(tl.int64)
        turned = (a < s)[:, None] & (rows < m)[None, :]
        y = tl.load(y_ptr + b * m * n + columns[:, None] * m + rows[None, :], mask=turned, other=0.0)
        u = tl.trans(tl.dot(block, y, input_precision="tf32"))
        mask = (rows < m)[:, None] & (a < s)[None, :]
        at = rows[:, None] * n + columns[None, :]
        p = tl.load(parameters + at, mask=mask, other=0.0)
        new = kept * p.to(tl.float32) - lr * u
        tl.store(new_ptr + b * m * n + at, new.to(new_ptr.dtype.element_ty), mask=mask)


@triton.jit
def moments_kernel(
    g_ptr, moments_ptr, offsets_ptr, numbers_ptr, start_at, s, columns, every, along, across, per_matrix, kept, new,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """C ← kept · C + new · x xᵀ for every group; x: columns start, start + every, … of the rows of a group.

    A matrix's numbers lie ``along`` apart within columns, columns ``across`` apart.
    """
    group, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    a, c = tl.arange(0, SIZE), tl.arange(0, COLUMNS)
    start = tl.load(numbers_ptr + start_at).to(tl.int64)
    row = (group * s + a).to(tl.int64) * along
    column = (start + c * every) * across
    some = (a < s)[:, None] & (c < columns)[None, :]
    x = tl.load(g_ptr + b * per_matrix + row[:, None] + column[None, :], mask=some, other=0.0)
    seen = tl.dot(x, tl.trans(x), input_precision="tf32")
    mask = (a < s)[:, None] & (a < s)[None, :]
    place = _owned(moments_ptr, offsets_ptr, b, GROUP_MOMENTS) + group * s * s + a[:, None] * s + a[None, :]
    C = tl.load(place, mask=mask, other=0.0)
    used = tl.load(numbers_ptr + USED) > 0
    tl.store(place, tl.where(used, kept * C + new * seen, C), mask=mask)


@triton.jit
def orthogonal_kernel(x_ptr, q_ptr, s, SIZE: tl.constexpr):
    """Q of the QR decomposition of each s × s matrix x, by Householder reflections; R has no negative diagonal entry.

    Reflections are orthogonal whatever x is, where Gram–Schmidt would divide by rounding errors. A column of zeros is
    reflected nowhere.
    """
    i = tl.arange(0, SIZE)
    at = tl.program_id(0).to(tl.int64) * s * s + i[:, None] * s + i[None, :]
    mask = (i < s)[:, None] & (i < s)[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    largest = tl.max(tl.max(tl.abs(x), axis=1), axis=0)
    x = x / tl.where(largest > 0, largest, 1.0)  # squares of small moments would underflow
    turned = tl.where(i[:, None] == i[None, :], 1.0, 0.0)  # Qᵀ: its sums go along the same axis as those of x
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
    tl.store(q_ptr + tl.trans(at), turned * sign[:, None], mask=mask)


@triton.jit
def commit_kernel(new_ptr, p_ptr, offsets_ptr, taken_ptr, size, BLOCK: tl.constexpr):
    """p ← new (B, size) where the step is taken."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    written = tl.where(tl.load(taken_ptr) != 0, size, 0)
    new = tl.load(new_ptr + b * size + i, mask=i < written)
    tl.store(_owned(p_ptr, offsets_ptr, b, PARAMETER) + i, new, mask=i < written)
