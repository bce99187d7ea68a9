"""Gluon kernel for the butterfly's gradients that keeps the sums of angle gradients in registers.

It does what `gpu_backward_kernels` does, with the same groups and tables, for one sweep over tiles of whole vectors,
two vectors at a time. A group holds them as (2^r, 2, M): a thread has the 2^r partners of its positions and gives
them away once, between two groups. Who holds what is said here rather than left to Triton, which lays out one tile in
two ways, exchanges parts of it twice, and cannot know that the sums should stay where they are; an H200 spends its
time on just that traffic (3.0 copies of the vectors with Triton's kernel, 2.4 with this one, in a loop of its own).

Triton's interpreter cannot run Gluon: there, and for other sizes, depths and float64, `gpu_backward_kernels` works.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from swallowtail.kernels.gpu_butterfly_kernels import first_bit, radix


@gluon.constexpr_function
def _held(GROUP, GROUPS, BITS, WARPS):
    """The layout of a group's (2^r, 2, M): neighbouring positions in neighbouring threads, all else in one."""
    return gl.BlockedLayout([2 ** radix(GROUP, GROUPS, BITS), 2, 1], [1, 1, 32], [1, 1, WARPS], [2, 1, 0])


@gluon.constexpr_function
def _summed(H, WARPS):
    """The layout of one number a pair, (H, M), in the thread that holds the pair."""
    return gl.BlockedLayout([H, 1], [1, 32], [1, WARPS], [1, 0])


@gluon.constexpr_function
def _wide(ptr, WARPS):
    """The layout of (2, N) in which memory is read best: 16 bytes side by side in a thread."""
    return gl.BlockedLayout([1, 128 // ptr.dtype.element_ty.primitive_bitwidth], [1, 32], [1, WARPS], [1, 0])


@gluon.constexpr_function
def _before(GROUP, GROUPS, UP):
    """The group whose turn was before; a sweep's first group finds the data as it holds it."""
    return max(GROUP - 1, 0) if UP else min(GROUP + 1, GROUPS - 1)


@gluon.constexpr_function
def _turn(GROUP, J, GROUPS, BITS, UP):
    """When in a sweep it is the turn of the Jth stage that GROUP takes."""
    first = first_bit(GROUP, GROUPS, BITS)
    return first + J if UP else BITS - first - radix(GROUP, GROUPS, BITS) + J


@gluon.jit
def _as_group(x, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr):
    """(2, N) → (2^r, 2, M)."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    LOW: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
    M: gl.constexpr = 2**BITS // RADIX
    return gl.reshape(gl.permute(gl.reshape(x, (2, M // LOW, RADIX, LOW)), (2, 0, 1, 3)), (RADIX, 2, M))


@gluon.jit
def _as_vectors(x, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr):
    """(2^r, 2, M) → (2, N)."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    LOW: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
    M: gl.constexpr = 2**BITS // RADIX
    return gl.reshape(gl.permute(gl.reshape(x, (RADIX, 2, M // LOW, LOW)), (1, 2, 0, 3)), (2, 2**BITS))


@gluon.jit
def _exchange(
    x,
    BEFORE: gl.constexpr,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    BITS: gl.constexpr,
    WARPS: gl.constexpr,
):
    if BEFORE != GROUP:
        x = _as_group(_as_vectors(x, BEFORE, GROUPS, BITS), GROUP, GROUPS, BITS)
        x = gl.convert_layout(x, _held(GROUP, GROUPS, BITS, WARPS))
    return x


@gluon.jit
def _offsets(
    ptr, first, n, n_rows, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    EVEN: gl.constexpr,
):  # fmt: skip
    """Offsets and mask of two vectors: as the last group holds them, whose neighbours in memory are neighbouring
    threads, or else as (2, N).
    """
    if GROUP == GROUPS - 1:
        layout: gl.constexpr = _held(GROUP, GROUPS, BITS, WARPS)
        M: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
        high = gl.arange(0, 2**BITS // M, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
        low = gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
        rows = first + gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
        coordinates = high * M + low
    else:
        layout: gl.constexpr = _wide(ptr, WARPS)
        rows = first + gl.arange(0, 2, gl.SliceLayout(1, layout))[:, None]
        coordinates = gl.arange(0, 2**BITS, gl.SliceLayout(0, layout))[None, :]
    mask = rows < n_rows
    if not EVEN:
        mask = mask & (coordinates < n)
    return rows * n + coordinates, mask


@gluon.jit
def _load(
    ptr, first, n, n_rows, DTYPE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """Two vectors as GROUP holds them."""
    offsets, mask = _offsets(ptr, first, n, n_rows, GROUP, GROUPS, BITS, WARPS, EVEN)
    x = gl.load(ptr + offsets, mask=mask, other=0.0)
    if GROUP != GROUPS - 1:
        x = gl.convert_layout(_as_group(x, GROUP, GROUPS, BITS), _held(GROUP, GROUPS, BITS, WARPS))
    return x.to(DTYPE)


@gluon.jit
def _store(
    ptr, x, first, n, n_rows, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    offsets, mask = _offsets(ptr, first, n, n_rows, GROUP, GROUPS, BITS, WARPS, EVEN)
    x = x.to(ptr.dtype.element_ty)
    if GROUP != GROUPS - 1:
        x = gl.convert_layout(_as_vectors(x, GROUP, GROUPS, BITS), _wide(ptr, WARPS))
    gl.store(ptr + offsets, x, mask=mask)


@gluon.jit
def _coefficients(
    ptr, STAGE: gl.constexpr, H: gl.constexpr, M: gl.constexpr, WARPS: gl.constexpr, ABOVE: gl.constexpr,
    LAYOUT: gl.constexpr,
):  # fmt: skip
    """One stage's coefficients, (ABOVE, BELOW, 1, M), where LAYOUT has the pairs."""
    WIDE: gl.constexpr = 4 if H >= 4 else H
    table: gl.constexpr = gl.BlockedLayout([1, H // WIDE, WIDE], [32, 1, 1], [WARPS, 1, 1], [2, 1, 0])
    position = gl.arange(0, M, gl.SliceLayout(1, gl.SliceLayout(2, table)))[:, None, None]
    high = gl.arange(0, H // WIDE, gl.SliceLayout(0, gl.SliceLayout(2, table)))[None, :, None]
    low = gl.arange(0, WIDE, gl.SliceLayout(0, gl.SliceLayout(1, table)))[None, None, :]
    u = gl.load(ptr + STAGE * (M * H) + high * (M * WIDE) + position * WIDE + low)
    u = gl.reshape(gl.permute(u, (1, 2, 0)), (ABOVE, H // ABOVE, 1, M))
    return gl.convert_layout(u, LAYOUT, assert_trivial=True)


@gluon.jit
def _one_vector_each(x, H: gl.constexpr, M: gl.constexpr, WARPS: gl.constexpr):
    """(ABOVE, BELOW, 2, M) → two (H, M)."""
    first, second = gl.split(gl.permute(x, (0, 1, 3, 2)))
    first = gl.convert_layout(gl.reshape(first, (H, M)), _summed(H, WARPS), assert_trivial=True)
    second = gl.convert_layout(gl.reshape(second, (H, M)), _summed(H, WARPS), assert_trivial=True)
    return first, second


@gluon.jit
def _rejoin(a, b, RADIX: gl.constexpr, M: gl.constexpr, LAYOUT: gl.constexpr):
    x = gl.reshape(gl.permute(gl.join(a, b), (0, 4, 1, 2, 3)), (RADIX, 2, M))
    return gl.convert_layout(x, LAYOUT, assert_trivial=True)


@gluon.jit
def _stage(
    y, g, total, u_ptr, v_ptr, BIT: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, TRANSPOSE: gl.constexpr,
):  # fmt: skip
    """Add the wedge products of one stage to their total, (H, M), and take both sides back through it."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    H: gl.constexpr = RADIX // 2
    ABOVE: gl.constexpr = H // 2**BIT
    M: gl.constexpr = 2**BITS // RADIX
    STAGE: gl.constexpr = first_bit(GROUP, GROUPS, BITS) + BIT
    ya, yb = gl.split(gl.permute(gl.reshape(y, (ABOVE, 2, 2**BIT, 2, M)), (0, 2, 3, 4, 1)))
    ga, gb = gl.split(gl.permute(gl.reshape(g, (ABOVE, 2, 2**BIT, 2, M)), (0, 2, 3, 4, 1)))
    pairs: gl.constexpr = ya.type.layout
    u = _coefficients(u_ptr, STAGE, H, M, WARPS, ABOVE, pairs)
    v = _coefficients(v_ptr, STAGE, H, M, WARPS, ABOVE, pairs)
    ya0, ya1 = _one_vector_each(ya, H, M, WARPS)
    yb0, yb1 = _one_vector_each(yb, H, M, WARPS)
    ga0, ga1 = _one_vector_each(ga, H, M, WARPS)
    gb0, gb1 = _one_vector_each(gb, H, M, WARPS)
    total = total + gb0 * ya0 - ga0 * yb0 + gb1 * ya1 - ga1 * yb1  # four multiply-adds, nothing in between
    if not TRANSPOSE:
        v = -v
    layout: gl.constexpr = _held(GROUP, GROUPS, BITS, WARPS)
    y = _rejoin(u * ya + v * yb, u * yb - v * ya, RADIX, M, layout)
    g = _rejoin(u * ga + v * gb, u * gb - v * ga, RADIX, M, layout)
    return y, g, total


@gluon.jit
def _group(
    y, g, sums, u_ptr, v_ptr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    UP: gl.constexpr, TRANSPOSE: gl.constexpr,
):  # fmt: skip
    y = _exchange(y, _before(GROUP, GROUPS, UP), GROUP, GROUPS, BITS, WARPS)
    g = _exchange(g, _before(GROUP, GROUPS, UP), GROUP, GROUPS, BITS, WARPS)
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    totals = ()
    for j in gl.static_range(r):
        y, g, total = _stage(
            y, g, sums[_turn(GROUP, j, GROUPS, BITS, UP)], u_ptr, v_ptr, j if UP else r - 1 - j, GROUP, GROUPS, BITS,
            WARPS, TRANSPOSE,
        )  # fmt: skip
        totals += (total,)
    return y, g, totals


@gluon.jit
def _zeros(
    DTYPE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr
):
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    totals = ()
    for _ in gl.static_range(r):
        totals += (gl.zeros((2 ** (r - 1), 2 ** (BITS - r)), DTYPE, _summed(2 ** (r - 1), WARPS)),)
    return totals


@gluon.jit
def _store_sums(
    ptr,
    sums,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    BITS: gl.constexpr,
    WARPS: gl.constexpr,
    UP: gl.constexpr,
):
    """Write the sums of a group's stages in the order of the tables."""
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    H: gl.constexpr = 2 ** (r - 1)
    M: gl.constexpr = 2 ** (BITS - r)
    WIDE: gl.constexpr = 4 if H >= 4 else H
    h = gl.arange(0, H, gl.SliceLayout(1, _summed(H, WARPS)))[:, None]
    position = gl.arange(0, M, gl.SliceLayout(0, _summed(H, WARPS)))[None, :]
    ptr += first_bit(GROUP, GROUPS, BITS) * (M * H)
    for j in gl.static_range(r):
        offsets = (j if UP else r - 1 - j) * (M * H) + (h // WIDE) * (M * WIDE) + position * WIDE + h % WIDE
        gl.store(ptr + offsets, sums[_turn(GROUP, j, GROUPS, BITS, UP)])


@gluon.jit
def backward_kernel(
    y_ptr, g_ptr, out_ptr, u_ptr, v_ptr, sum_ptr,
    n, n_rows, row_blocks, slots, y_stride, g_stride, out_stride, table_stride, sum_stride, slot_stride,
    TRANSPOSE: gl.constexpr, UP: gl.constexpr, EVEN: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Walk back from y = Q x (TRANSPOSE) or y = Qᵀ x with its gradient g, adding up each angle's wedge product.

    A program takes the pairs of vectors slot, slot + slots, … and writes its own sums, (slots, BITS, N/2) in all.
    """
    slot = gl.program_id(0) % slots
    batch = (gl.program_id(0) // slots).to(gl.int64)
    y_ptr += batch * y_stride
    g_ptr += batch * g_stride
    out_ptr += batch * out_stride
    u_ptr += batch * table_stride
    v_ptr += batch * table_stride
    DTYPE: gl.constexpr = u_ptr.dtype.element_ty
    BEGIN: gl.constexpr = 0 if UP else GROUPS - 1
    END: gl.constexpr = GROUPS - 1 if UP else 0
    sums = ()  # in the order of the stages' turns
    for i in gl.static_range(GROUPS):
        sums += _zeros(DTYPE, i if UP else GROUPS - 1 - i, GROUPS, BITS, WARPS)
    for block in range(slot, row_blocks, slots):
        first = block.to(gl.int64) * 2
        y = _load(y_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, WARPS, EVEN)
        g = _load(g_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, WARPS, EVEN)
        totals = ()
        for i in gl.static_range(GROUPS):
            y, g, more = _group(
                y, g, sums, u_ptr, v_ptr, i if UP else GROUPS - 1 - i, GROUPS, BITS, WARPS, UP, TRANSPOSE
            )  # fmt: skip
            totals += more
        sums = totals
        _store(out_ptr, g, first, n, n_rows, END, GROUPS, BITS, WARPS, EVEN)
    sum_ptr += batch * sum_stride + slot.to(gl.int64) * slot_stride
    for i in gl.static_range(GROUPS):
        _store_sums(sum_ptr, sums, i if UP else GROUPS - 1 - i, GROUPS, BITS, WARPS, UP)
