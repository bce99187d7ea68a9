"""Triton kernels of GivensAdam's dense groups: steps, changes of basis and moments of all matrices at once.

Both sides of a matrix are cut into groups, so the matrix is cut into tiles that have nothing to do with each other: the
rows of one left group and the columns of one right group. A program takes a tile through the whole step, with products
on tensor cores in bf16: gradients are noisier than its 8 bits, and losses were the same as with TF32. A side without a
basis is cut into tiles all the same.

Which matrix, tile or group a program works on stands in tables, so that one launch serves matrices of all shapes.
Tensors are found by how many entries beyond the first of their kind they begin. SIZE is the size of the largest group,
as a power of two. ``numbers_ptr`` has a `DeviceNumbers` row per stack: what changes from step to step is read from
there, so that a recorded launch can be replayed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.optim.adam.state import DeviceNumbers, Numbers

EPS, FACTOR, LR, KEPT, BOUND, GAIN, USED, FIT, NEW1, KEPT2, NEW2, SIGN, DECAY = (
    tl.constexpr(DeviceNumbers.index(name))
    for name in (
        "eps", "factor", "lr", "kept", "bound", "gain", "used", "fit", "new1", "kept2", "new2", "sign", "decay",
    )
)  # fmt: skip
N_NUMBERS = tl.constexpr(len(Numbers._fields))

# Columns of the table of matrices: where tensors begin, sizes of the matrix and of its tiles, the row of numbers, and
# the first of the matrix's groups on each side, counted over all matrices; −1 for a side without a basis.
GRADIENT, PARAMETER, FIRST, SECOND, LEFT_GROUPS, RIGHT_GROUPS, M, N, LEFT_SIZE, RIGHT_SIZE, ROW = (
    tl.constexpr(k) for k in range(11)
)
LEFT_FIRST, RIGHT_FIRST, MATRIX_WIDTH = (tl.constexpr(k) for k in range(11, 14))
# Of the table of groups: where its matrix and its moments begin, its size, the row of numbers; where its coordinates
# begin in a gradient, how far apart a coordinate and a column are from the next one, how many columns moments take in,
# every how many, and which of the numbers says where they begin.
OWN, MOMENTS, GROUP_SIZE, GROUP_ROW, BEGIN, ALONG, ACROSS, COLUMNS, EVERY, START = (
    tl.constexpr(k) for k in range(10)
)
GROUP_WIDTH = tl.constexpr(10)
ALIGNMENT = 16  # offsets of tensors are multiples of this many entries
ALIGNED_TO = tl.constexpr(ALIGNMENT)


@triton.jit
def _aligned(table_ptr, WHICH: tl.constexpr):
    """An offset. The hint is kept by offsets, not by addresses; without it every entry is loaded on its own."""
    return tl.multiple_of(tl.load(table_ptr + WHICH), ALIGNED_TO)


@triton.jit
def number(numbers_ptr, WHICH: tl.constexpr):
    return tl.load(numbers_ptr + WHICH).to(tl.float32)


@triton.jit
def _places(rows, columns, length, SIZE: tl.constexpr):
    """Where the entries of a tile lie in a matrix with rows of this length, and which of them exist."""
    r, c = tl.arange(0, SIZE), tl.arange(0, SIZE)
    # Offsets within a tile have 32 bits: 64 would take registers that the tile needs.
    return r[:, None] * length + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]


@triton.jit
def load_tile(ptr, rows, columns, length, SIZE: tl.constexpr, EVEN: tl.constexpr):
    at, some = _places(rows, columns, length, SIZE)
    x = tl.load(ptr + at) if EVEN else tl.load(ptr + at, mask=some, other=0.0)
    return x.to(tl.float32)


@triton.jit
def _load_once(ptr, rows, columns, length, SIZE: tl.constexpr, EVEN: tl.constexpr):
    """What is not needed again leaves the room in caches to the bases."""
    at, some = _places(rows, columns, length, SIZE)
    if EVEN:
        x = tl.load(ptr + at, eviction_policy="evict_first")
    else:
        x = tl.load(ptr + at, mask=some, other=0.0, eviction_policy="evict_first")
    return x.to(tl.float32)


@triton.jit
def store_tile(ptr, x, rows, columns, length, SIZE: tl.constexpr, EVEN: tl.constexpr):
    at, some = _places(rows, columns, length, SIZE)
    x = x.to(ptr.dtype.element_ty)
    if EVEN:
        tl.store(ptr + at, x, eviction_policy="evict_first")
    else:
        tl.store(ptr + at, x, mask=some, eviction_policy="evict_first")


@triton.jit
def _product(a, b, HALF: tl.constexpr):
    """On tensor cores, in bf16 (HALF) or TF32."""
    return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16)) if HALF else tl.dot(a, b, input_precision="tf32")


@triton.jit
def _tile(tile_ptr, matrix_ptr, EVEN: tl.constexpr, SIZE: tl.constexpr):
    """The matrix of a program, its tile, the sizes of both, and where the tile begins in (m, n) and in (n, m)."""
    tile_ptr += tl.program_id(0) * 3
    matrix_ptr += tl.load(tile_ptr) * MATRIX_WIDTH
    i, j = tl.load(tile_ptr + 1), tl.load(tile_ptr + 2)
    m, n = tl.load(matrix_ptr + M).to(tl.int32), tl.load(matrix_ptr + N).to(tl.int32)
    if EVEN:
        m, n, s_left, s_right = tl.multiple_of(m, 16), tl.multiple_of(n, 16), SIZE, SIZE
    else:
        s_left = tl.load(matrix_ptr + LEFT_SIZE).to(tl.int32)
        s_right = tl.load(matrix_ptr + RIGHT_SIZE).to(tl.int32)
    rows, columns = tl.minimum(s_left, m - i * s_left), tl.minimum(s_right, n - j * s_right)
    here = (i * s_left).to(tl.int64) * n + j * s_right
    turned = (j * s_right).to(tl.int64) * m + i * s_left
    return matrix_ptr, i, j, m, n, s_left, s_right, rows, columns, here, turned


@triton.jit
def step_kernel(
    g_ptr, p_ptr, first_ptr, second_ptr, groups_ptr, matrix_ptr, tile_ptr, numbers_ptr, taken_ptr,
    EVEN: tl.constexpr, HALF: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """p ← kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ if the step is taken; moments (n, m) move on if it is used.

    EVEN: all tiles are whole, and both sides have bases. HALF: products in bf16. Bases are loaded where they are
    needed, twice each: registers do not hold more than three tiles.
    """
    matrix_ptr, i, j, m, n, s_left, s_right, rows, columns, here, turned = _tile(
        tile_ptr, matrix_ptr, EVEN, SIZE
    )
    numbers_ptr += tl.load(matrix_ptr + ROW) * N_NUMBERS
    left, right = tl.load(matrix_ptr + LEFT_FIRST), tl.load(matrix_ptr + RIGHT_FIRST)
    left_ptr = groups_ptr + _aligned(matrix_ptr, LEFT_GROUPS) + i * s_left * s_left
    right_ptr = groups_ptr + _aligned(matrix_ptr, RIGHT_GROUPS) + j * s_right * s_right
    z = _load_once(g_ptr + _aligned(matrix_ptr, GRADIENT) + here, rows, columns, n, SIZE, EVEN)
    z = z * number(numbers_ptr, SIGN)
    if EVEN or right >= 0:
        z = _product(z, load_tile(right_ptr, s_right, s_right, s_right, SIZE, EVEN), HALF)
    z = tl.trans(z)
    if EVEN or left >= 0:
        z = _product(z, load_tile(left_ptr, s_left, s_left, s_left, SIZE, EVEN), HALF)
    used = tl.load(numbers_ptr + USED) > 0
    second_ptr += _aligned(matrix_ptr, SECOND) + turned
    second = _load_once(second_ptr, columns, rows, m, SIZE, EVEN)
    moved = number(numbers_ptr, KEPT2) * second + number(numbers_ptr, NEW2) * z * z
    second = tl.where(used, moved, second)
    store_tile(second_ptr, second, columns, rows, m, SIZE, EVEN)
    first_ptr += _aligned(matrix_ptr, FIRST) + turned
    first = _load_once(first_ptr, columns, rows, m, SIZE, EVEN)
    first = tl.where(used, first + number(numbers_ptr, NEW1) * (z - first), first)
    store_tile(first_ptr, first, columns, rows, m, SIZE, EVEN)
    u = direction(first, second, numbers_ptr)
    u = _further(u, number(numbers_ptr, GAIN))
    if EVEN or left >= 0:
        Q = load_tile(left_ptr, s_left, s_left, s_left, SIZE, EVEN)
        u = _product(u, tl.trans(Q), HALF)
    u = tl.trans(u)
    if EVEN or right >= 0:
        Q = load_tile(right_ptr, s_right, s_right, s_right, SIZE, EVEN)
        u = _product(u, tl.trans(Q), HALF)
    if tl.load(taken_ptr) != 0:
        p_ptr += _aligned(matrix_ptr, PARAMETER) + here
        p = _load_once(p_ptr, rows, columns, n, SIZE, EVEN)
        new = number(numbers_ptr, KEPT) * p - number(numbers_ptr, LR) * u
        store_tile(p_ptr, new, rows, columns, n, SIZE, EVEN)


@triton.jit
def direction(first, second, numbers_ptr):
    """Adam's direction, no entry larger than the bound. Where there has been no gradient at all it is zero."""
    below = tl.sqrt(second) + number(numbers_ptr, EPS)
    # Where this is zero, the first moment is zero as well.
    u = number(numbers_ptr, FACTOR) * first / tl.where(below > 0, below, 1.0)
    bound = number(numbers_ptr, BOUND)
    return tl.minimum(tl.maximum(u, -bound), bound)


@triton.jit
def _further(u, gain):
    """As `swallowtail.optim.adam.direction.further`."""
    square = tl.minimum(u * u, 1.0)
    fourth = square * square
    return u * (1 + gain * (fourth * fourth))


@triton.jit
def carry_kernel(
    first_ptr, second_ptr, change_ptr, matrix_ptr, tile_ptr, numbers_ptr, EVEN: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """First moments (n, m) in new bases: z ← T_Rᵀ z T_L, with T = Q_oldᵀ Q_new of each group, (groups, SIZE, SIZE).

    In the first basis both moments begin anew.
    """
    matrix_ptr, i, j, m, _, s_left, s_right, rows, columns, _, turned = _tile(
        tile_ptr, matrix_ptr, EVEN, SIZE
    )
    numbers_ptr += tl.load(matrix_ptr + ROW) * N_NUMBERS
    fit = tl.load(numbers_ptr + FIT) * tl.load(numbers_ptr + USED)
    first_ptr += _aligned(matrix_ptr, FIRST) + turned
    if fit == 1:
        z = load_tile(first_ptr, columns, rows, m, SIZE, EVEN)
        left, right = tl.load(matrix_ptr + LEFT_FIRST), tl.load(matrix_ptr + RIGHT_FIRST)
        if EVEN or left >= 0:
            left_ptr = change_ptr + (left + i) * (SIZE * SIZE)
            z = tl.dot(z, load_tile(left_ptr, s_left, s_left, SIZE, SIZE, EVEN), input_precision="tf32")
        if EVEN or right >= 0:
            right_ptr = change_ptr + (right + j) * (SIZE * SIZE)
            T = load_tile(right_ptr, s_right, s_right, SIZE, SIZE, EVEN)
            z = tl.dot(tl.trans(T), z, input_precision="tf32")
        store_tile(first_ptr, z, columns, rows, m, SIZE, EVEN)
    if fit == 2:
        zero = tl.zeros((SIZE, SIZE), tl.float32)
        store_tile(first_ptr, zero, columns, rows, m, SIZE, EVEN)
        second_ptr += _aligned(matrix_ptr, SECOND) + turned
        store_tile(second_ptr, zero, columns, rows, m, SIZE, EVEN)


@triton.jit
def moments_kernel(
    g_ptr, moments_ptr, group_ptr, numbers_ptr, MOST: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """C ← decay · C + (1 − decay) x xᵀ for every group; x: columns start, start + every, … of a group's rows."""
    group_ptr += tl.program_id(0) * GROUP_WIDTH
    numbers_ptr += tl.load(group_ptr + GROUP_ROW) * N_NUMBERS
    if tl.load(numbers_ptr + USED) > 0:
        s = tl.load(group_ptr + GROUP_SIZE).to(tl.int32)
        a, c = tl.arange(0, SIZE), tl.arange(0, MOST)
        start = tl.load(numbers_ptr + tl.load(group_ptr + START)).to(tl.int64)
        row = tl.load(group_ptr + BEGIN) + a.to(tl.int64) * tl.load(group_ptr + ALONG)
        column = (start + c * tl.load(group_ptr + EVERY)) * tl.load(group_ptr + ACROSS)
        some = (a < s)[:, None] & (c < tl.load(group_ptr + COLUMNS))[None, :]
        x = tl.load(g_ptr + row[:, None] + column[None, :], mask=some, other=0.0).to(tl.float32)
        seen = tl.dot(x, tl.trans(x), input_precision="tf32")
        decay = number(numbers_ptr, DECAY)
        moments_ptr += tl.load(group_ptr + MOMENTS)
        C = load_tile(moments_ptr, s, s, s, SIZE, False)
        store_tile(moments_ptr, decay * C + (1 - decay) * seen, s, s, s, SIZE, False)
