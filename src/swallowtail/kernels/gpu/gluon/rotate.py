"""Gluon kernel for Q x, Qᵀ x and Q D Qᵀ x: `gpu_butterfly_kernels.rotate_kernel` for vectors held whole.

It is used where the exchanges between threads, not the memory, take the time: half-precision storage and Q D Qᵀ x.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from swallowtail.kernels.gpu.gluon import layouts as h
from swallowtail.kernels.gpu.triton.butterfly import radix, step


@gluon.jit
def _stage(
    x, u_ptr, v_ptr, BIT: gl.constexpr, GROUP: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr,
    GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    a, b = h.split_pairs(x, BIT)
    u = h.coefficients(u_ptr, a, BIT, GROUP, GROUPS, BITS, WARPS)
    v = h.coefficients(v_ptr, a, BIT, GROUP, GROUPS, BITS, WARPS)
    a, b = step(a, b, u, v, TRANSPOSE, FAST)
    return h.join_pairs(a, b, h.held(GROUP, GROUPS, BITS, ROWS, WARPS))


@gluon.jit
def _group(
    x, u_ptr, v_ptr, GROUP: gl.constexpr, UP: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr,
    GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    x = h.exchange(x, h.before(GROUP, GROUPS, UP), GROUP, GROUPS, BITS, ROWS, WARPS)
    r: gl.constexpr = radix(GROUP, GROUPS, BITS)
    for j in gl.static_range(r):
        x = _stage(
            x, u_ptr, v_ptr, j if UP else r - 1 - j, GROUP, TRANSPOSE, FAST, GROUPS, BITS, ROWS, WARPS
        )  # fmt: skip
    return x


@gluon.jit
def _sweep(
    x, u_ptr, v_ptr, UP: gl.constexpr, TRANSPOSE: gl.constexpr, FAST: gl.constexpr, GROUPS: gl.constexpr,
    BITS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """All stages once, strides growing (UP) or falling; x comes as the first group holds it and leaves as the last."""
    for i in gl.static_range(GROUPS):
        x = _group(
            x, u_ptr, v_ptr, i if UP else GROUPS - 1 - i, UP, TRANSPOSE, FAST, GROUPS, BITS, ROWS, WARPS
        )  # fmt: skip
    return x


@gluon.jit
def _times_diagonal(
    x, ptr, n, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    at = h.coordinates(GROUP, GROUPS, BITS, h.held(GROUP, GROUPS, BITS, 1, WARPS))
    if EVEN:  # noqa: SIM108 (the compiler takes one branch)
        diagonal = gl.load(ptr + at)
    else:
        diagonal = gl.load(ptr + at, mask=at < n, other=0.0)
    return x * gl.convert_layout(diagonal, h.held(GROUP, GROUPS, BITS, ROWS, WARPS), assert_trivial=True)


@gluon.jit
def rotate_kernel(
    x_ptr, y_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, scale_ptr, middle_ptr,
    n, n_rows, row_blocks, x_stride, y_stride, table_stride, scale_stride, middle_stride,
    TO_BASIS: gl.constexpr, FROM_BASIS: gl.constexpr, MIDDLE: gl.constexpr, UP: gl.constexpr, FAST: gl.constexpr,
    DEPTH: gl.constexpr, EVEN: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then a diagonal (MIDDLE), then Q (FROM_BASIS), each optional; arguments as Triton's kernel has."""
    program = gl.program_id(0)
    batch = (program // row_blocks).to(gl.int64)
    first = (program % row_blocks).to(gl.int64) * ROWS
    u_ptr += batch * table_stride
    v_ptr += batch * table_stride
    u_again_ptr += batch * table_stride
    v_again_ptr += batch * table_stride
    scale_ptr += batch * scale_stride
    SWEEP: gl.constexpr = BITS * 2 ** (BITS - 1)
    BOTTOM: gl.constexpr = 0 if UP else GROUPS - 1  # the group where Q begins and Qᵀ ends
    TOP: gl.constexpr = GROUPS - 1 if UP else 0
    BEGIN: gl.constexpr = TOP if TO_BASIS else BOTTOM
    END: gl.constexpr = TOP if FROM_BASIS else BOTTOM
    DTYPE: gl.constexpr = u_ptr.dtype.element_ty
    x = h.load(x_ptr + batch * x_stride, first, n, n_rows, DTYPE, BEGIN, GROUPS, BITS, ROWS, WARPS, EVEN)
    if TO_BASIS:
        for d in range(DEPTH - 1):
            x = _sweep(x, u_ptr + d * SWEEP, v_ptr + d * SWEEP, not UP, True, FAST, GROUPS, BITS, ROWS, WARPS)
            if FAST:
                x = _times_diagonal(x, scale_ptr + d * n, n, BOTTOM, GROUPS, BITS, ROWS, WARPS, EVEN)
            x = h.exchange(x, BOTTOM, TOP, GROUPS, BITS, ROWS, WARPS)
        last = (DEPTH - 1) * SWEEP
        x = _sweep(x, u_ptr + last, v_ptr + last, not UP, True, FAST, GROUPS, BITS, ROWS, WARPS)
    if MIDDLE:
        x = _times_diagonal(
            x, middle_ptr + batch * middle_stride, n, BOTTOM, GROUPS, BITS, ROWS, WARPS, EVEN
        )  # fmt: skip
    if FROM_BASIS:
        last = (DEPTH - 1) * SWEEP
        x = _sweep(x, u_again_ptr + last, v_again_ptr + last, UP, False, FAST, GROUPS, BITS, ROWS, WARPS)
        for i in range(DEPTH - 1):
            d = DEPTH - 2 - i
            x = h.exchange(x, TOP, BOTTOM, GROUPS, BITS, ROWS, WARPS)
            if FAST:
                x = _times_diagonal(x, scale_ptr + d * n, n, BOTTOM, GROUPS, BITS, ROWS, WARPS, EVEN)
            x = _sweep(
                x, u_again_ptr + d * SWEEP, v_again_ptr + d * SWEEP, UP, False, FAST, GROUPS, BITS, ROWS, WARPS
            )  # fmt: skip
    h.store(y_ptr + batch * y_stride, x, first, n, n_rows, END, GROUPS, BITS, ROWS, WARPS, EVEN)
