"""Triton kernels for the butterfly: several stages of a tile at a time, kept in registers.

`groups` says how stages are shared out, `tiles` which coordinates a program works on.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.groups import (  # fmt: skip
    coefficients_of_angles,
    direct_group,
    first_bit,
    from_group,
    load_coefficients,
    partners,
    radix,
    rejoin,
    step,
    table_offsets,
    to_group,
)
from swallowtail.kernels.gpu.triton.ranges import exponent, power, times_power
from swallowtail.kernels.gpu.triton.tiles import load_diagonal, load_tile, store_tile


@triton.jit
def _stage(
    x, u_ptr, v_ptr, BIT: tl.constexpr, FIRST: tl.constexpr, H: tl.constexpr,
    ROWS: tl.constexpr, M: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr, LIVE: tl.constexpr,
):  # fmt: skip
    """One stage of a group on x (2^r, ROWS, M)."""
    ABOVE: tl.constexpr = H // 2**BIT
    BELOW: tl.constexpr = 2**BIT
    offsets = table_offsets(FIRST + BIT, H, M)
    if LIVE:
        u, v = coefficients_of_angles(u_ptr, v_ptr, offsets, H, M, ABOVE, BELOW)
    else:
        u = load_coefficients(u_ptr, offsets, H, M, ABOVE, BELOW)
        v = load_coefficients(v_ptr, offsets, H, M, ABOVE, BELOW)
    a, b = partners(x, ABOVE, BELOW, ROWS, M)
    a, b = step(a, b, u, v, TRANSPOSE, FAST)
    return rejoin(a, b, ABOVE, BELOW, ROWS, M)


@triton.jit
def _group(
    x, u_ptr, v_ptr, GROUP: tl.constexpr, GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr,
    ROWS: tl.constexpr, GROWING: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr, LIVE: tl.constexpr,
):  # fmt: skip
    """The stages of one group on x (ROWS, N)."""
    r: tl.constexpr = radix(GROUP, GROUPS, BITS)
    FIRST: tl.constexpr = first_bit(GROUP, GROUPS, BITS)
    LOW: tl.constexpr = COLS * 2**FIRST
    HIGH: tl.constexpr = 2 ** (BITS - FIRST - r)
    x = to_group(x, 2**r, LOW, HIGH, ROWS)
    for i in tl.static_range(r):
        x = _stage(
            x, u_ptr, v_ptr, i if GROWING else r - 1 - i, FIRST, 2 ** (r - 1), ROWS, HIGH * LOW, TRANSPOSE, FAST,
            LIVE
        )  # fmt: skip
    return from_group(x, 2**r, LOW, HIGH, ROWS)


@triton.jit
def whole_sweep(
    x, u_ptr, v_ptr, GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr,
    ROWS: tl.constexpr, GROWING: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr,
    LIVE: tl.constexpr = False,
):  # fmt: skip
    """All stages of a pass once on x (ROWS, N), in order of growing strides (GROWING) or falling ones.

    LIVE: instead of u and v there are an index and the angles themselves, as `coefficients_of_angles` takes them.
    """
    for i in tl.static_range(GROUPS):
        x = _group(
            x, u_ptr, v_ptr, i if GROWING else GROUPS - 1 - i, GROUPS, BITS, COLS, ROWS, GROWING, TRANSPOSE, FAST,
            LIVE
        )  # fmt: skip
    return x


@triton.jit(do_not_specialize=["n_rows", "row_blocks"])
def rotate_kernel(
    x_ptr, y_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, scale_ptr, middle_ptr,
    n, n_rows, row_blocks, tiles, x_stride, y_stride, table_stride, scale_stride, middle_stride,
    TO_BASIS: tl.constexpr, FROM_BASIS: tl.constexpr, MIDDLE: tl.constexpr, GROWING: tl.constexpr, FAST: tl.constexpr,
    DEPTH: tl.constexpr, EVEN: tl.constexpr, QUADRATIC: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr,
    LIVE: tl.constexpr,
):  # fmt: skip
    """One pass over the vectors: Qᵀ (TO_BASIS), then a diagonal (MIDDLE), then Q (FROM_BASIS), each optional.

    GROWING says that Q applies its stages in order of growing strides; Qᵀ then applies them in order of falling ones.
    With QUADRATIC the pass ends in the middle and writes Σ d w², one number per vector and tile. The tables come
    twice, as u, v and u_again, v_again. Read from the same pointer, the compiler would keep all coefficients of Qᵀ in
    registers until Q needs them. In the fast form, sweep d of Qᵀ ends with a multiplication by its scales and sweep d
    of Q begins with it. The scales of the innermost sweep are part of the diagonal.

    A program takes ROWS vectors of one tile. It takes each times a power of two (`ranges`), except in fp16, whose range
    is so much smaller than that of the arithmetic. DIRECT allows loads and stores in a group's layout
    (`direct_group`). With LIVE there is one tile and one rotation, in the plain form, and its coefficients are made
    here: u is an index and v the angles, which all sweeps share.
    """
    program = tl.program_id(0)
    block = (program // tiles) % row_blocks
    tile = program % tiles
    batch = (program // tiles // row_blocks).to(tl.int64)
    rows = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_ptr += batch * x_stride
    SWEEP: tl.constexpr = BITS * (COLS * 2**BITS // 2)
    own = batch * table_stride + tile.to(tl.int64) * SWEEP
    u_ptr += own
    u_again_ptr += own
    sweep = tl.cast(tiles, tl.int64) * SWEEP
    if LIVE:
        v_sweep = sweep * 0
    else:
        v_ptr += own
        v_again_ptr += own
        v_sweep = sweep
    scale_ptr += batch * scale_stride
    DTYPE: tl.constexpr = tl.float32 if LIVE else u_ptr.dtype.element_ty

    FIRST_GROWING: tl.constexpr = (not GROWING) if TO_BASIS else GROWING
    IN: tl.constexpr = direct_group(FIRST_GROWING, True, GROUPS, COLS, DIRECT)
    x = load_tile(x_ptr, rows, tile, n, n_rows, DTYPE, IN, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE)
    RANGED: tl.constexpr = x_ptr.dtype.element_ty != tl.float16
    BOTH: tl.constexpr = TO_BASIS and FROM_BASIS and MIDDLE
    if RANGED:
        size = exponent(tl.max(tl.abs(x), axis=1))  # shape: (ROWS,)
        x = x * power(-size, DTYPE)[:, None]
    if TO_BASIS:
        for d in range(DEPTH - 1):
            x = whole_sweep(
                x, u_ptr + d * sweep, v_ptr + d * v_sweep, GROUPS, BITS, COLS, ROWS, not GROWING, True, FAST, LIVE
            )  # fmt: skip
            if FAST:
                x = x * load_diagonal(scale_ptr + d * n, tile, n, EVEN, BITS, COLS, STRIDE)
        u_last, v_last = u_ptr + (DEPTH - 1) * sweep, v_ptr + (DEPTH - 1) * v_sweep
        x = whole_sweep(x, u_last, v_last, GROUPS, BITS, COLS, ROWS, not GROWING, True, FAST, LIVE)
    if QUADRATIC:
        diagonal = load_diagonal(middle_ptr + batch * middle_stride, tile, n, EVEN, BITS, COLS, STRIDE).to(
            DTYPE
        )
        if RANGED:
            size_d = exponent(tl.max(tl.abs(diagonal), axis=1))  # shape: (1,)
            diagonal = diagonal * power(-size_d, DTYPE)[:, None]
        total = tl.sum(x * (x * diagonal), axis=1)  # x² alone may overflow where the scales are small
        if RANGED:
            total = times_power(total, 2 * size + size_d, 3)
        tl.store(y_ptr + batch * y_stride + rows * tiles + tile, total, mask=rows < n_rows)
    else:
        if MIDDLE:
            diagonal = load_diagonal(
                middle_ptr + batch * middle_stride, tile, n, EVEN, BITS, COLS, STRIDE
            ).to(DTYPE)
            if RANGED and BOTH:
                size_d = exponent(tl.max(tl.abs(diagonal), axis=1))  # shape: (1,)
                diagonal = diagonal * power(-size_d, DTYPE)[:, None]
                size = size + size_d
            x = x * diagonal
        if FROM_BASIS:
            u_last, v_last = u_again_ptr + (DEPTH - 1) * sweep, v_again_ptr + (DEPTH - 1) * v_sweep
            x = whole_sweep(x, u_last, v_last, GROUPS, BITS, COLS, ROWS, GROWING, False, FAST, LIVE)
            for i in range(DEPTH - 1):
                d = DEPTH - 2 - i
                if FAST:
                    x = x * load_diagonal(scale_ptr + d * n, tile, n, EVEN, BITS, COLS, STRIDE)
                x = whole_sweep(
                    x, u_again_ptr + d * sweep, v_again_ptr + d * v_sweep, GROUPS, BITS, COLS, ROWS, GROWING, False,
                    FAST, LIVE
                )  # fmt: skip
        if RANGED:
            x = times_power(x, size[:, None], 2 if BOTH else 1)
        LAST_GROWING: tl.constexpr = GROWING if FROM_BASIS else (not GROWING)
        OUT: tl.constexpr = direct_group(LAST_GROWING, False, GROUPS, COLS, DIRECT)
        y_ptr += batch * y_stride
        store_tile(y_ptr, x, rows, tile, n, n_rows, OUT, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE)
