"""Triton kernels of GivensAdam's dense groups: a step in one, the change of basis, the moments of groups, QR.

Both sides of a matrix are cut into groups, so the matrix is cut into tiles that have nothing to do with each other: the
rows of one left group and the columns of one right group. A program takes a tile through the whole step, with products
on tensor cores in TF32: gradients are noisier than its 10 bits. A side without a basis is cut into tiles all the same.

``s`` is the size of the groups of a side, at most the constant SIZE; the last tile may have fewer rows or columns. The
last axis of the grid is the matrix of the stack, ``b``. Each matrix has tensors of its own: rows of ``offsets_ptr`` say
how many entries beyond those of the first matrix they begin. Groups are stacked. ``numbers_ptr``, ``new1``, ``kept2``
and ``new2`` are as in `kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.optim.adam.gpu.kernels import BOUND, EPS, FACTOR, KEPT, LR, USED

OFFSETS = 4  # per matrix: of what is written below
GRADIENT, PARAMETER, FIRST_MOMENT, SECOND_MOMENT = (tl.constexpr(k) for k in range(OFFSETS))
GROUP_MOMENTS = tl.constexpr(1)
ALIGNMENT = 16  # all offsets are multiples of this many entries
N_OFFSETS, ALIGNED_TO = tl.constexpr(OFFSETS), tl.constexpr(ALIGNMENT)


@triton.jit
def _owned(first_ptr, offsets_ptr, b, WHICH: tl.constexpr):
    """Matrix b's own tensor, found from that of the stack's first matrix."""
    # The hint is kept by offsets, not by addresses; without it every entry is loaded on its own.
    return first_ptr + tl.multiple_of(tl.load(offsets_ptr + b * N_OFFSETS + WHICH), ALIGNED_TO)


@triton.jit
def _places(rows, columns, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where the entries of a tile lie in a matrix with rows of this length, and which of them exist."""
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    # Offsets within a tile have 32 bits: 64 would take registers that the tile needs.
    return r[:, None] * length + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]


@triton.jit
def _load(ptr, rows, columns, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    at, some = _places(rows, columns, length, ROWS, COLUMNS)
    x = tl.load(ptr + at) if EVEN else tl.load(ptr + at, mask=some, other=0.0)
    return x.to(tl.float32)


@triton.jit
def _store(ptr, x, rows, columns, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    at, some = _places(rows, columns, length, ROWS, COLUMNS)
    x = x.to(ptr.dtype.element_ty)
    if EVEN:
        tl.store(ptr + at, x)
    else:
        tl.store(ptr + at, x, mask=some)


@triton.jit
def step_groups_kernel(
    g_ptr, p_ptr, first_ptr, second_ptr, offsets_ptr, left_ptr, right_ptr, numbers_ptr, taken_ptr,
    m, n, s_left, s_right, tiles_left, tiles_right, new1, kept2, new2, sign,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """p ← kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ if the step is taken; moments (n, m) move on if it is used.

    Matrices are loaded where they are needed, some of them twice: registers do not hold more than three tiles.

    Args:
        g_ptr, p_ptr: gradients and parameters (m, n) of the first matrix.
        first_ptr, second_ptr: its moments, (n, m).
        offsets_ptr: as above.
        left_ptr, right_ptr: groups (B, tiles, s, s).
        numbers_ptr: as above.
        taken_ptr: whether parameters are written.
        m, n: the sizes of a matrix.
        s_left, s_right: rows and columns of a tile.
        tiles_left, tiles_right: how many there are.
        new1, kept2, new2: as above.
        sign: −1 to climb.
        LEFT, RIGHT: whether the side has a basis.
        EVEN: all tiles are whole.
        ROWS, COLUMNS: s_left and s_right as powers of two.
    """
    i, j, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows, columns = tl.minimum(s_left, m - i * s_left), tl.minimum(s_right, n - j * s_right)
    here = (i * s_left).to(tl.int64) * n + j * s_right
    turned = (j * s_right).to(tl.int64) * m + i * s_left
    left_ptr += (b * tiles_left + i) * s_left * s_left
    right_ptr += (b * tiles_right + j) * s_right * s_right
    z = sign * _load(_owned(g_ptr, offsets_ptr, b, GRADIENT) + here, rows, columns, n, ROWS, COLUMNS, EVEN)
    if RIGHT:
        Q = _load(right_ptr, s_right, s_right, s_right, COLUMNS, COLUMNS, EVEN)
        z = tl.dot(z, Q, input_precision="tf32")
    z = tl.trans(z)
    if LEFT:
        Q = _load(left_ptr, s_left, s_left, s_left, ROWS, ROWS, EVEN)
        z = tl.dot(z, Q, input_precision="tf32")
    used = tl.load(numbers_ptr + USED) > 0
    second_ptr = _owned(second_ptr, offsets_ptr, b, SECOND_MOMENT) + turned
    second = _load(second_ptr, columns, rows, m, COLUMNS, ROWS, EVEN)
    second = tl.where(used, kept2 * second + new2 * z * z, second)
    _store(second_ptr, second, columns, rows, m, COLUMNS, ROWS, EVEN)
    first_ptr = _owned(first_ptr, offsets_ptr, b, FIRST_MOMENT) + turned
    first = _load(first_ptr, columns, rows, m, COLUMNS, ROWS, EVEN)
    first = tl.where(used, first + new1 * (z - first), first)
    _store(first_ptr, first, columns, rows, m, COLUMNS, ROWS, EVEN)
    u = _direction(first, second, numbers_ptr)
    if LEFT:
        Q = _load(left_ptr, s_left, s_left, s_left, ROWS, ROWS, EVEN)
        u = tl.dot(u, tl.trans(Q), input_precision="tf32")
    u = tl.trans(u)
    if RIGHT:
        Q = _load(right_ptr, s_right, s_right, s_right, COLUMNS, COLUMNS, EVEN)
        u = tl.dot(u, tl.trans(Q), input_precision="tf32")
    lr, kept = tl.load(numbers_ptr + LR).to(tl.float32), tl.load(numbers_ptr + KEPT).to(tl.float32)
    if tl.load(taken_ptr) != 0:
        p_ptr = _owned(p_ptr, offsets_ptr, b, PARAMETER) + here
        p = _load(p_ptr, rows, columns, n, ROWS, COLUMNS, EVEN)
        _store(p_ptr, kept * p - lr * u, rows, columns, n, ROWS, COLUMNS, EVEN)


@triton.jit
def _direction(first, second, numbers_ptr):
    """Adam's direction, no entry larger than the bound. Where there has been no gradient at all it is zero."""
    eps, factor = tl.load(numbers_ptr + EPS).to(tl.float32), tl.load(numbers_ptr + FACTOR).to(tl.float32)
    bound = tl.load(numbers_ptr + BOUND).to(tl.float32)
    below = tl.sqrt(second) + eps
    u = factor * first / tl.where(below > 0, below, 1.0)  # the first moment is zero as well
    return tl.minimum(tl.maximum(u, -bound), bound)


@triton.jit
def carry_groups_kernel(
    first_ptr, offsets_ptr, left_ptr, right_ptr, m, n, s_left, s_right, tiles_left, tiles_right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """First moments (n, m) in new bases: z ← T_Rᵀ z T_L, with T = Q_oldᵀ Q_new of each group."""
    i, j, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows, columns = tl.minimum(s_left, m - i * s_left), tl.minimum(s_right, n - j * s_right)
    first_ptr = _owned(first_ptr, offsets_ptr, b, FIRST_MOMENT) + (j * s_right).to(tl.int64) * m + i * s_left
    z = _load(first_ptr, columns, rows, m, COLUMNS, ROWS, EVEN)
    if LEFT:
        left_ptr += (b * tiles_left + i) * s_left * s_left
        T = _load(left_ptr, s_left, s_left, s_left, ROWS, ROWS, EVEN)
        z = tl.dot(z, T, input_precision="tf32")
    if RIGHT:
        right_ptr += (b * tiles_right + j) * s_right * s_right
        T = _load(right_ptr, s_right, s_right, s_right, COLUMNS, COLUMNS, EVEN)
        z = tl.dot(tl.trans(T), z, input_precision="tf32")
    _store(first_ptr, z, columns, rows, m, COLUMNS, ROWS, EVEN)


@triton.jit
def moments_kernel(
    g_ptr, moments_ptr, offsets_ptr, numbers_ptr, start_at, s, columns, every, along, across, kept, new,
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
    g_ptr = _owned(g_ptr, offsets_ptr, b, GRADIENT)
    x = tl.load(g_ptr + row[:, None] + column[None, :], mask=some, other=0.0).to(tl.float32)
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
def vectors_kernel(
    g_ptr, p_ptr, first_ptr, second_ptr, offsets_ptr, new_ptr, numbers_ptr, size, new1, kept2, new2, sign,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """new (B, size) = kept · p − lr · Adam(g) for B vectors; their moments move on."""
    i, b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    some = i < size
    offsets_ptr += b * N_OFFSETS
    g = sign * tl.load(g_ptr + tl.load(offsets_ptr + GRADIENT) + i, mask=some, other=0.0).to(tl.float32)
    used = tl.load(numbers_ptr + USED) > 0
    first_ptr += tl.load(offsets_ptr + FIRST_MOMENT)
    first = tl.load(first_ptr + i, mask=some, other=0.0)
    first = tl.where(used, first + new1 * (g - first), first)
    tl.store(first_ptr + i, first, mask=some)
    second_ptr += tl.load(offsets_ptr + SECOND_MOMENT)
    second = tl.load(second_ptr + i, mask=some, other=0.0)
    second = tl.where(used, kept2 * second + new2 * g * g, second)
    tl.store(second_ptr + i, second, mask=some)
    eps, factor = tl.load(numbers_ptr + EPS).to(tl.float32), tl.load(numbers_ptr + FACTOR).to(tl.float32)
    lr, kept = tl.load(numbers_ptr + LR).to(tl.float32), tl.load(numbers_ptr + KEPT).to(tl.float32)
    p = tl.load(p_ptr + tl.load(offsets_ptr + PARAMETER) + i, mask=some, other=0.0).to(tl.float32)
    new = kept * p - lr * factor * first / (tl.sqrt(second) + eps)
    tl.store(new_ptr + b * size + i, new.to(new_ptr.dtype.element_ty), mask=some)


@triton.jit
def commit_kernel(new_ptr, p_ptr, offsets_ptr, taken_ptr, size, BLOCK: tl.constexpr):
    """p ← new (B, size) where the step is taken."""
    i, b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    written = tl.where(tl.load(taken_ptr) != 0, size, 0)
    new = tl.load(new_ptr + b * size + i, mask=i < written)
    p_ptr += tl.load(offsets_ptr + b * N_OFFSETS + PARAMETER)
    tl.store(p_ptr + i, new, mask=i < written)
