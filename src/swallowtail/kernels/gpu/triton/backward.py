"""Triton kernels for the butterfly's gradients: y and its gradient walk back together, stage by stage.

Tiles, groups and tables are those of `butterfly`, in the plain form.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.groups import (  # fmt: skip
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
from swallowtail.kernels.gpu.triton.tiles import load_tile, store_tile


@triton.jit
def _backward_stage(
    y, g, u_ptr, v_ptr, sum_ptr, begun, BIT: tl.constexpr, FIRST: tl.constexpr, H: tl.constexpr,
    ROWS: tl.constexpr, M: tl.constexpr, TRANSPOSE: tl.constexpr,
):  # fmt: skip
    """Add the wedge products of one stage to the program's sums, then take both sides back through it."""
    ABOVE: tl.constexpr = H // 2**BIT
    BELOW: tl.constexpr = 2**BIT
    WIDE: tl.constexpr = 4 if H >= 4 else H
    offsets = table_offsets(FIRST + BIT, H, M)
    u = load_coefficients(u_ptr, offsets, H, M, ABOVE, BELOW)
    v = load_coefficients(v_ptr, offsets, H, M, ABOVE, BELOW)
    ya, yb = partners(y, ABOVE, BELOW, ROWS, M)
    ga, gb = partners(g, ABOVE, BELOW, ROWS, M)
    wedge = tl.reshape(tl.sum(gb * ya - ga * yb, axis=2), (H // WIDE, WIDE, M))
    before = tl.load(sum_ptr + offsets, mask=begun, other=0.0)
    tl.store(sum_ptr + offsets, before + tl.permute(wedge, (2, 0, 1)))
    ya, yb = step(ya, yb, u, v, TRANSPOSE, False)
    ga, gb = step(ga, gb, u, v, TRANSPOSE, False)
    return rejoin(ya, yb, ABOVE, BELOW, ROWS, M), rejoin(ga, gb, ABOVE, BELOW, ROWS, M)


@triton.jit
def _backward_group(
    y, g, u_ptr, v_ptr, sum_ptr, begun, GROUP: tl.constexpr, GROUPS: tl.constexpr, BITS: tl.constexpr,
    COLS: tl.constexpr, ROWS: tl.constexpr, GROWING: tl.constexpr, TRANSPOSE: tl.constexpr,
):  # fmt: skip
    """The stages of one group on y and g, both (ROWS, N)."""
    r: tl.constexpr = radix(GROUP, GROUPS, BITS)
    FIRST: tl.constexpr = first_bit(GROUP, GROUPS, BITS)
    LOW: tl.constexpr = COLS * 2**FIRST
    HIGH: tl.constexpr = 2 ** (BITS - FIRST - r)
    y = to_group(y, 2**r, LOW, HIGH, ROWS)
    g = to_group(g, 2**r, LOW, HIGH, ROWS)
    for i in tl.static_range(r):
        y, g = _backward_stage(
            y, g, u_ptr, v_ptr, sum_ptr, begun, i if GROWING else r - 1 - i, FIRST, 2 ** (r - 1), ROWS,
            HIGH * LOW, TRANSPOSE
        )  # fmt: skip
    return from_group(y, 2**r, LOW, HIGH, ROWS), from_group(g, 2**r, LOW, HIGH, ROWS)


@triton.jit(do_not_specialize=["n_rows", "row_blocks", "slots", "begun"])
def backward_kernel(
    y_ptr, g_ptr, y_out_ptr, g_out_ptr, u_ptr, v_ptr, sum_ptr,
    n, n_rows, row_blocks, tiles, slots, y_stride, g_stride, y_out_stride, g_out_stride, table_stride,
    sum_stride, slot_stride, begun,
    KEEP_Y: tl.constexpr, TRANSPOSE: tl.constexpr, GROWING: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Walk back from y = Q x (TRANSPOSE) or y = Qᵀ x with its gradient g, adding up each angle's wedge product.

    A program takes the row blocks slot, slot + slots, … of one tile. It keeps its own sums; all of them are (slots,
    DEPTH, tiles, BITS, N/2). Nothing is added in an order that could change from run to run. The sums start from zero
    unless ``begun`` is 1. GROWING is the order of strides on the way back. KEEP_Y writes y too, for the next pass.
    """
    program = tl.program_id(0)
    tile = program % tiles
    slot = (program // tiles) % slots
    batch = (program // tiles // slots).to(tl.int64)
    SWEEP: tl.constexpr = BITS * (COLS * 2**BITS // 2)
    sweep = tl.cast(tiles, tl.int64) * SWEEP
    u_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    v_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    sum_ptr += batch * sum_stride + slot.to(tl.int64) * slot_stride + tile.to(tl.int64) * SWEEP
    DTYPE: tl.constexpr = u_ptr.dtype.element_ty
    IN: tl.constexpr = direct_group(GROWING, True, GROUPS, COLS, DIRECT)
    OUT: tl.constexpr = direct_group(GROWING, False, GROUPS, COLS, DIRECT)
    for block in range(slot, row_blocks, slots):
        rows = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        y = load_tile(
            y_ptr + batch * y_stride, rows, tile, n, n_rows, DTYPE, IN, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE
        )  # fmt: skip
        g = load_tile(
            g_ptr + batch * g_stride, rows, tile, n, n_rows, DTYPE, IN, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE
        )  # fmt: skip
        for i in range(DEPTH):
            d = i if TRANSPOSE else DEPTH - 1 - i
            for j in tl.static_range(GROUPS):
                y, g = _backward_group(
                    y, g, u_ptr + d * sweep, v_ptr + d * sweep, sum_ptr + d * sweep, block + begun > slot,
                    j if GROWING else GROUPS - 1 - j, GROUPS, BITS, COLS, ROWS, GROWING, TRANSPOSE,
                )  # fmt: skip
        if KEEP_Y:
            store_tile(
                y_out_ptr + batch * y_out_stride, y, rows, tile, n, n_rows, OUT, EVEN, GROUPS, BITS, COLS,
                ROWS, STRIDE
            )  # fmt: skip
        store_tile(
            g_out_ptr + batch * g_out_stride, g, rows, tile, n, n_rows, OUT, EVEN, GROUPS, BITS, COLS, ROWS,
            STRIDE
        )  # fmt: skip
        tl.debug_barrier()  # the next block adds to the sums that this one wrote


@triton.jit(do_not_specialize=["slots"])
def collect_kernel(
    sum_ptr, index_ptr, out_ptr, K, size, slots, SIGN: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up the slots of (B, slots, size) and write each place's sum to its angle in (B, K), by ``index`` (size,)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(1).to(tl.int64)
    total = tl.zeros((SLOTS, BLOCK), tl.float64)
    for first in range(0, slots, SLOTS):
        slot = first + tl.arange(0, SLOTS)
        inside = (slot < slots)[:, None] & (at < size)[None, :]
        offsets = (batch * slots + slot)[:, None] * size + at[None, :]
        total += tl.load(sum_ptr + offsets, mask=inside, other=0.0).to(tl.float64)
    index = tl.load(index_ptr + at, mask=at < size, other=0)
    result = (SIGN * tl.sum(total, axis=0)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + batch * K + index - 1, result, mask=index > 0)
