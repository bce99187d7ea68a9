"""Gluon kernel for Q x, Qᵀ x and Q D Qᵀ x on vectors that a program keeps whole in registers.

It computes what Triton's `rotate_kernel` does, powers of two for vectors of any size included. It is used where the
exchanges between threads, not the memory, take the time: half-precision storage and Q D Qᵀ x.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon import layouts
from swallowtail.kernels.gpu.triton.groups import radix, step
from swallowtail.kernels.gpu.triton_private import gl, gluon


@gluon.jit
def _stage(
    x, u_ptr, v_ptr, BIT: gl.constexpr, GROUP: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr,
    GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """One stage of a group on x (2^r, ROWS, M)."""
    a, b = layouts.split_pairs(x, BIT)
    u = layouts.coefficients(u_ptr, a, BIT, GROUP, GROUPS, BITS, WARPS)
    v = layouts.coefficients(v_ptr, a, BIT, GROUP, GROUPS, BITS, WARPS)
    a, b = step(a, b, u, v, TRANSPOSE, FAST)
    return layouts.join_pairs(a, b, layouts.group_layout(GROUP, GROUPS, BITS, ROWS, WARPS))


@gluon.jit
def _group(
    x, u_ptr, v_ptr, GROUP: gl.constexpr, GROWING: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr,
    GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Exchange between threads, then the stages of one group."""
    x = layouts.exchange(x, layouts.previous(GROUP, GROUPS, GROWING), GROUP, GROUPS, BITS, ROWS, WARPS)
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    for j in gl.static_range(r):
        x = _stage(
            x, u_ptr, v_ptr, j if GROWING else r - 1 - j, GROUP, TRANSPOSE, FAST, GROUPS, BITS, ROWS, WARPS
        )  # fmt: skip
    return x


@gluon.jit
def _sweep(
    x, u_ptr, v_ptr, GROWING: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr, GROUPS: gl.constexpr,
    BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """All stages once, in order of growing strides (GROWING) or falling ones.

    x comes in the layout of the first group and leaves in that of the last.
    """
    for i in gl.static_range(GROUPS):
        x = _group(
            x, u_ptr, v_ptr, i if GROWING else GROUPS - 1 - i, GROWING, TRANSPOSE, FAST, GROUPS, BITS, ROWS, WARPS
        )  # fmt: skip
    return x


@gluon.jit
def _diagonal(
    ptr, n, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """A diagonal (n,) in the layout of GROUP, (2^r, 1, M)."""
    at = layouts.coordinates(GROUP, GROUPS, BITS, layouts.group_layout(GROUP, GROUPS, BITS, 1, WARPS))
    if EVEN:  # noqa: SIM108 (the compiler takes one branch)
        diagonal = gl.load(ptr + at)
    else:
        diagonal = gl.load(ptr + at, mask=at < n, other=0.0)
    layout: gl.constexpr = layouts.group_layout(GROUP, GROUPS, BITS, ROWS, WARPS)
    return gl.convert_layout(diagonal, layout, assert_trivial=True)


@gluon.jit
def _exponent(x):
    """e with 2^e ≤ the largest number of each vector of x (2^r, ROWS, M) < 2^(e+1), (ROWS,); as in `triton.ranges`."""
    largest = gl.max(gl.max(gl.abs(x), axis=0), axis=1)  # partners first: they are in one thread
    e = ((largest.to(gl.int32, bitcast=True) >> 23) & 255) - 127
    return gl.minimum(gl.maximum(e, -120), 120)


@gluon.jit
def _times_power(x, e, PARTS: gl.constexpr):
    """x · 2^e for each vector, in so many factors on the same side of 1; e (ROWS,) in any layout."""
    LAYOUT: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(0, x.type.layout))
    e = gl.convert_layout(e, LAYOUT)
    part = e // PARTS
    for k in gl.static_range(PARTS):
        own = part if k + 1 < PARTS else e - (PARTS - 1) * part
        factor = ((own + 127) << 23).to(gl.float32, bitcast=True)
        x = x * gl.expand_dims(gl.expand_dims(factor, 1), 0)
    return x


@gluon.jit
def whole_rotate_kernel(
    x_ptr, y_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, scale_ptr, middle_ptr,
    n, n_rows, row_blocks, x_stride, y_stride, table_stride, scale_stride, middle_stride,
    TO_BASIS: gl.constexpr, FROM_BASIS: gl.constexpr, MIDDLE: gl.constexpr, GROWING: gl.constexpr, FAST: gl.constexpr,
    DEPTH: gl.constexpr, EVEN: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then a diagonal (MIDDLE), then Q (FROM_BASIS), each optional.

    The parameters are those of Triton's `rotate_kernel`.
    """
    program = gl.program_id(0)
    batch = (program // row_blocks).to(gl.int64)
    first = (program % row_blocks).to(gl.int64) * ROWS
    u_ptr += batch * table_stride
    v_ptr += batch * table_stride
    u_again_ptr += batch * table_stride
    v_again_ptr += batch * table_stride
    scale_ptr += batch * scale_stride
    SWEEP: gl.constexpr = BITS * 2 ** (BITS - 1)
    INNER: gl.constexpr = 0 if GROWING else GROUPS - 1  # next to the middle: Qᵀ ends and Q begins here
    OUTER: gl.constexpr = GROUPS - 1 if GROWING else 0  # Qᵀ begins and Q ends here
    BEGIN: gl.constexpr = OUTER if TO_BASIS else INNER
    END: gl.constexpr = OUTER if FROM_BASIS else INNER
    DTYPE: gl.constexpr = u_ptr.dtype.element_ty
    x = layouts.load(
        x_ptr + batch * x_stride, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN
    )
    RANGED: gl.constexpr = x_ptr.dtype.element_ty != gl.float16
    BOTH: gl.constexpr = TO_BASIS and FROM_BASIS and MIDDLE
    if RANGED:
        size = _exponent(x)  # shape: (ROWS,)
        x = _times_power(x, -size, 1)
    if TO_BASIS:
        for d in range(DEPTH - 1):
            x = _sweep(
                x, u_ptr + d * SWEEP, v_ptr + d * SWEEP, not GROWING, True, FAST, GROUPS, BITS, ROWS, WARPS
            )
            if FAST:
                x = x * _diagonal(scale_ptr + d * n, n, INNER, GROUPS, BITS, ROWS, WARPS, EVEN)
            x = layouts.exchange(x, INNER, OUTER, GROUPS, BITS, ROWS, WARPS)
        last = (DEPTH - 1) * SWEEP
        x = _sweep(x, u_ptr + last, v_ptr + last, not GROWING, True, FAST, GROUPS, BITS, ROWS, WARPS)
    if MIDDLE:
        middle = _diagonal(middle_ptr + batch * middle_stride, n, INNER, GROUPS, BITS, ROWS, WARPS, EVEN)
        if RANGED and BOTH:
            size_d = _exponent(middle)  # shape: (1,)
            middle = _times_power(middle, -size_d, 1)
            size = size + gl.convert_layout(size_d, size.type.layout)
        x = x * middle
    if FROM_BASIS:
        last = (DEPTH - 1) * SWEEP
        x = _sweep(x, u_again_ptr + last, v_again_ptr + last, GROWING, False, FAST, GROUPS, BITS, ROWS, WARPS)
        for i in range(DEPTH - 1):
            d = DEPTH - 2 - i
            x = layouts.exchange(x, OUTER, INNER, GROUPS, BITS, ROWS, WARPS)
            if FAST:
                x = x * _diagonal(scale_ptr + d * n, n, INNER, GROUPS, BITS, ROWS, WARPS, EVEN)
            x = _sweep(
                x, u_again_ptr + d * SWEEP, v_again_ptr + d * SWEEP, GROWING, False, FAST, GROUPS, BITS, ROWS, WARPS
            )  # fmt: skip
    if RANGED:
        x = _times_power(x, size, 2 if BOTH else 1)
    layouts.store(y_ptr + batch * y_stride, x, first, n, n_rows, END, GROUPS, BITS, ROWS, WARPS, EVEN)
