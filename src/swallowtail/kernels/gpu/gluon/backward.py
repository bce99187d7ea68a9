"""Gluon kernel for the butterfly's gradients that keeps the sums of angle gradients in registers.

It computes what Triton's `backward_kernel` does, for one sweep over whole vectors, two at a time, in the layouts of
`layouts`. Triton cannot be told to keep the sums in registers. On an H200, in a microbenchmark, its kernel takes as
long as 3.0 copies of the vectors, and this one as long as 2.3.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon import layouts
from swallowtail.kernels.gpu.triton.groups import first_bit, radix, step
from swallowtail.kernels.gpu.triton_private import gl, gluon

ROWS = gl.constexpr(2)  # vectors at a time: `_one_vector_each` splits them in two


@gluon.constexpr_function
def _summed(GROUP, GROUPS, BITS, WARPS):
    """The layout of one number per pair, (H, M), in the thread that has the pair."""
    partners, _, positions = layouts.group_layout(GROUP, GROUPS, BITS, ROWS, WARPS).size_per_thread
    return gl.BlockedLayout([partners // 2, positions], [1, 32], [1, WARPS], [1, 0])


@gluon.constexpr_function
def _place_in_sweep(GROUP, J, GROUPS, BITS, GROWING):
    """How many stages of a sweep come before the Jth stage that GROUP takes."""
    first = first_bit(GROUP, GROUPS, BITS)
    return first + J if GROWING else BITS - first - radix(GROUP, GROUPS, BITS) + J


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
def _coefficients(
    u_ptr, v_ptr, pairs, BIT: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, WORDS: gl.constexpr,
):  # fmt: skip
    """u and v of one stage. WORDS: both are fp16 numbers in a word, u in its lower half."""
    u = layouts.coefficients(u_ptr, pairs, BIT, GROUP, GROUPS, BITS, WARPS)
    if WORDS:
        v = (u >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
        u = u.to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
    else:
        v = layouts.coefficients(v_ptr, pairs, BIT, GROUP, GROUPS, BITS, WARPS)
    return u, v


@gluon.jit
def _stage(
    y, g, total, u_ptr, v_ptr, BIT: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr, TRANSPOSE: gl.constexpr, WORDS: gl.constexpr,
):  # fmt: skip
    """Add the wedge products of one stage to their total, (H, M), and take both sides back through it."""
    ya, yb = layouts.split_pairs(y, BIT)
    ga, gb = layouts.split_pairs(g, BIT)
    u, v = _coefficients(u_ptr, v_ptr, ya, BIT, GROUP, GROUPS, BITS, WARPS, WORDS)
    ya0, ya1 = _one_vector_each(ya, total)
    yb0, yb1 = _one_vector_each(yb, total)
    ga0, ga1 = _one_vector_each(ga, total)
    gb0, gb1 = _one_vector_each(gb, total)
    total = total + gb0 * ya0 - ga0 * yb0 + gb1 * ya1 - ga1 * yb1  # four multiply-adds, nothing in between
    ya, yb = step(ya, yb, u, v, TRANSPOSE, False)
    ga, gb = step(ga, gb, u, v, TRANSPOSE, False)
    layout: gl.constexpr = layouts.group_layout(GROUP, GROUPS, BITS, ROWS, WARPS)
    return layouts.join_pairs(ya, yb, layout), layouts.join_pairs(ga, gb, layout), total


@gluon.jit
def _exchange(
    y, g, BEFORE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    PACKED: gl.constexpr,
):  # fmt: skip
    """y and g in the layout of another group. PACKED: both as bf16 in one word, which halves the traffic."""
    if PACKED and BEFORE != GROUP:
        both = gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", [y, g], dtype=gl.int32, is_pure=True, pack=1
        )
        both = layouts.exchange(both, BEFORE, GROUP, GROUPS, BITS, ROWS, WARPS)
        y = (both & -65536).to(gl.float32, bitcast=True)
        g = (both << 16).to(gl.float32, bitcast=True)
    else:
        y = layouts.exchange(y, BEFORE, GROUP, GROUPS, BITS, ROWS, WARPS)
        g = layouts.exchange(g, BEFORE, GROUP, GROUPS, BITS, ROWS, WARPS)
    return y, g


@gluon.jit
def _group(
    y, g, sums, u_ptr, v_ptr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    GROWING: gl.constexpr, TRANSPOSE: gl.constexpr, PACKED: gl.constexpr, WORDS: gl.constexpr,
):  # fmt: skip
    """The stages of one group on y and g, and the new sums of these stages."""
    y, g = _exchange(
        y, g, layouts.previous(GROUP, GROUPS, GROWING), GROUP, GROUPS, BITS, WARPS, PACKED
    )  # fmt: skip
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    totals = ()
    for j in gl.static_range(r):
        y, g, total = _stage(
            y, g, sums[_place_in_sweep(GROUP, j, GROUPS, BITS, GROWING)], u_ptr, v_ptr,
            j if GROWING else r - 1 - j, GROUP, GROUPS, BITS, WARPS, TRANSPOSE, WORDS,
        )  # fmt: skip
        totals += (total,)
    return y, g, totals


@gluon.jit
def _zeros(
    DTYPE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr
):
    """The sums of a group's stages at the start."""
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    totals = ()
    for _ in gl.static_range(r):
        totals += (gl.zeros((2 ** (r - 1), 2 ** (BITS - r)), DTYPE, _summed(GROUP, GROUPS, BITS, WARPS)),)
    return totals


@gluon.jit
def _store_sums(
    ptr, sums, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, WARPS: gl.constexpr,
    GROWING: gl.constexpr,
):  # fmt: skip
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
        stage = (j if GROWING else r - 1 - j) * (M * H)
        offsets = stage + (pair // WIDE) * (M * WIDE) + position * WIDE + pair % WIDE
        gl.store(ptr + offsets, sums[_place_in_sweep(GROUP, j, GROUPS, BITS, GROWING)])


@gluon.jit
def whole_backward_kernel(
    y_ptr, g_ptr, out_ptr, u_ptr, v_ptr, sum_ptr,
    n, n_rows, row_blocks, slots, y_stride, g_stride, out_stride, table_stride, sum_stride, slot_stride,
    TRANSPOSE: gl.constexpr, GROWING: gl.constexpr, EVEN: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    PACKED: gl.constexpr, WORDS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Walk back from y = Q x (TRANSPOSE) or y = Qᵀ x with its gradient g, adding up each angle's wedge product.

    A program takes blocks slot, slot + slots, … of two vectors and writes its own sums; all of them are (slots, BITS,
    N/2). GROWING is the order of strides on the way back. PACKED: threads exchange numbers as bf16. WORDS:
    ``u_ptr`` has both coefficients (`tables.packed`). Traffic of L1 and shared memory is the bound, and each halves a
    part of it.
    """
    slot = gl.program_id(0) % slots
    batch = (gl.program_id(0) // slots).to(gl.int64)
    y_ptr += batch * y_stride
    g_ptr += batch * g_stride
    out_ptr += batch * out_stride
    u_ptr += batch * table_stride
    v_ptr += batch * table_stride
    DTYPE: gl.constexpr = gl.float32 if WORDS else u_ptr.dtype.element_ty
    BEGIN: gl.constexpr = 0 if GROWING else GROUPS - 1
    END: gl.constexpr = GROUPS - 1 if GROWING else 0
    sums = ()  # by the order of the stages in a sweep
    for i in gl.static_range(GROUPS):
        sums += _zeros(DTYPE, i if GROWING else GROUPS - 1 - i, GROUPS, BITS, WARPS)
    for block in range(slot, row_blocks, slots):
        first = block.to(gl.int64) * ROWS
        y = layouts.load(y_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN)
        g = layouts.load(g_ptr, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN)
        totals = ()
        for i in gl.static_range(GROUPS):
            y, g, more = _group(
                y, g, sums, u_ptr, v_ptr, i if GROWING else GROUPS - 1 - i, GROUPS, BITS, WARPS, GROWING, TRANSPOSE,
                PACKED, WORDS,
            )  # fmt: skip
            totals += more
        sums = totals
        layouts.store(out_ptr, g, first, n, n_rows, END, GROUPS, BITS, ROWS, WARPS, EVEN)
    sum_ptr += batch * sum_stride + slot.to(gl.int64) * slot_stride
    for i in gl.static_range(GROUPS):
        _store_sums(sum_ptr, sums, i if GROWING else GROUPS - 1 - i, GROUPS, BITS, WARPS, GROWING)
