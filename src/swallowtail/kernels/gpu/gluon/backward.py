"""Gluon kernel for the butterfly's gradients that keeps the sums of angle gradients in registers.

It does what `gpu_backward_kernels` does for one sweep over whole vectors, two at a time, laid out as `gpu_held` says.
Triton cannot know that the sums should stay where they are: on an H200 its kernel takes 3.0 copies of the vectors, this
one 2.3, in a loop of its own.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from swallowtail.kernels.gpu.gluon import layouts as h
from swallowtail.kernels.gpu.triton.butterfly import first_bit, radix, step

ROWS = gl.constexpr(2)  # vectors at a time


@gluon.constexpr_function
def _summed(GROUP, GROUPS, BITS, WARPS):
    """The layout of one number a pair, (H, M), in the thread that holds the pair."""
    partners, _, positions = h.held(GROUP, GROUPS, BITS, ROWS, WARPS).size_per_thread
    return gl.BlockedLayout([partners // 2, positions], [1, 32], [1, WARPS], [1, 0])


@gluon.constexpr_function
def _turn(GROUP, J, GROUPS, BITS, UP):
    """When in a sweep it is the turn of the Jth stage that GROUP takes."""
    first = first_bit(GROUP, GROUPS, BITS)
    return first + J if UP else BITS - first - radix(GROUP, GROUPS, BITS) + J


@gluon.jit
def _one_vector_each(x, total):
    """(ABOVE, BELOW, 2, M) → two (H, M), laid out as their total."""
    layout: gl.constexpr = total.type.layout
    first, second = gl.split(gl.permute(x, (0, 1, 3, 2)))
    shape: gl.constexpr = (x.shape[0] * x.shape[1], x.shape[3])
    first = gl.convert_layout(gl.reshape(first, shape), layout, assert_trivial=True)
    second = gl.convert_layout(gl.reshape(second, shape), layout, assert_trivial=True)
    return first, second


@gluon.jit
def _stage(
    y, g, total, u_ptr, v_ptr, BIT: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, TRANSPOSE: gl.constexpr,
):  # fmt: skip
    """Add the wedge products of one stage to their total, (H, M), and take both sides back through it."""
    ya, yb = h.split_pairs(y, BIT)
    ga, gb = h.split_pairs(g, BIT)
    u = h.coefficients(u_ptr, ya, BIT, GROUP, GROUPS, BITS, WARPS)
    v = h.coefficients(v_ptr, ya, BIT, GROUP, GROUPS, BITS, WARPS)
    ya0, ya1 = _one_vector_each(ya, total)
    yb0, yb1 = _one_vector_each(yb, total)
    ga0, ga1 = _one_vector_each(ga, total)
    gb0, gb1 = _one_vector_each(gb, total)
    total = total + gb0 * ya0 - ga0 * yb0 + gb1 * ya1 - ga1 * yb1  # four multiply-adds, nothing in between
    ya, yb = step(ya, yb, u, v, TRANSPOSE, False)
    ga, gb = step(ga, gb, u, v, TRANSPOSE, False)
    layout: gl.constexpr = h.held(GROUP, GROUPS, BITS, ROWS, WARPS)
    return h.join_pairs(ya, yb, layout), h.join_pairs(ga, gb, layout), total


@gluon.jit
def _group(
    y, g, sums, u_ptr, v_ptr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    UP: gl.constexpr, TRANSPOSE: gl.constexpr,
):  # fmt: skip
    BEFORE: gl.constexpr = h.before(GROUP, GROUPS, UP)
    y = h.exchange(y, BEFORE, GROUP, GROUPS, BITS, ROWS, WARPS)
    g = h.exchange(g, BEFORE, GROUP, GROUPS, BITS, ROWS, WARPS)
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
        totals += (gl.zeros((2 ** (r - 1), 2 ** (BITS - r)), DTYPE, _summed(GROUP, GROUPS, BITS, WARPS)),)
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
    layout: gl.constexpr = _summed(GROUP, GROUPS, BITS, WARPS)
    pair = gl.arange(0, H, gl.SliceLayout(1, layout))[:, None]
    position = gl.arange(0, M, gl.SliceLayout(0, layout))[None, :]
    ptr += first_bit(GROUP, GROUPS, BITS) * (M * H)
    for j in gl.static_range(r):
        offsets = (
            (j if UP else r - 1 - j) * (M * H) + (pair // WIDE) * (M * WIDE) + position * WIDE + pair % WIDE
        )
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
        first = block.to(gl.int64) * ROWS
        y = h.load(y_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN)
        g = h.load(g_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN)
        totals = ()
        for i in gl.static_range(GROUPS):
            y, g, more = _group(
                y, g, sums, u_ptr, v_ptr, i if UP else GROUPS - 1 - i, GROUPS, BITS, WARPS, UP, TRANSPOSE
            )  # fmt: skip
            totals += more
        sums = totals
        h.store(out_ptr, g, first, n, n_rows, END, GROUPS, BITS, ROWS, WARPS, EVEN)
    sum_ptr += batch * sum_stride + slot.to(gl.int64) * slot_stride
    for i in gl.static_range(GROUPS):
        _store_sums(sum_ptr, sums, i if UP else GROUPS - 1 - i, GROUPS, BITS, WARPS, UP)
