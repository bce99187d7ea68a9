"""Triton kernels for the butterfly: several stages of a tile at a time, held in registers.

A pass works on tiles of 2^BITS coordinates spaced STRIDE apart, times COLS neighbours of each, for ROWS
vectors. Its stages come in groups of up to four. A group brings 2^r partners of each of M positions into one
thread, as a tensor (2^r, ROWS, M); splitting and joining that first axis then moves nothing, so data crosses
threads only between groups. The coefficients lie in memory as (stage, H/4, M, 4) with H = 2^(r-1): a thread
finds its own side by side. Both tables hold N/2 numbers a stage, N = COLS 2^BITS:

    plain  u = cos θ, v = sin θ                 Q: (u a − v b, v a + u b)     Qᵀ: (u a + v b, u b − v a)
    fast   u = tan θ σb/σa, v = tan θ σa/σb     Q: (a − v b, b + u a)         Qᵀ: (a + u b, b − v a)

where σ is the scale that a coordinate has gathered on the way (`gpu_tables.prepare_fast`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def radix(GROUP, GROUPS, BITS):
    """Stages in a group: as even as possible, the low groups taking one more."""
    return BITS // GROUPS + (1 if GROUP < BITS % GROUPS else 0)


@triton.constexpr_function
def direct_group(UP, FIRST, GROUPS, COLS, DIRECT):
    """The first or last group of a sweep if its neighbours in memory are neighbouring threads, else −1."""
    group = (0 if UP else GROUPS - 1) if FIRST else (GROUPS - 1 if UP else 0)
    return group if DIRECT and (COLS > 1 or group == GROUPS - 1) else -1


@triton.constexpr_function
def first_bit(GROUP, GROUPS, BITS):
    return GROUP * (BITS // GROUPS) + (GROUP if GROUP < BITS % GROUPS else BITS % GROUPS)


@triton.jit
def table_kernel(angles_ptr, index_ptr, u_ptr, v_ptr, K, size, BLOCK: tl.constexpr):
    """u = cos θ, v = sin θ, each angle in the places ``index`` gives it (from 1; 0 is no angle, θ = 0)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(1).to(tl.int64)
    index = tl.load(index_ptr + at, mask=at < size, other=0)
    theta = tl.load(angles_ptr + batch * K + index - 1, mask=index > 0, other=0.0).to(tl.float64)
    out = batch * size + at
    tl.store(u_ptr + out, tl.cos(theta).to(u_ptr.dtype.element_ty), mask=at < size)
    tl.store(v_ptr + out, tl.sin(theta).to(v_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def table_offsets(STAGE: tl.constexpr, H: tl.constexpr, M: tl.constexpr):
    """Where a thread's coefficients of one stage lie: shape (M, H/4, 4), or (M, 1, H) when H < 4.

    M comes first since of equal axes the compiler spreads its threads over the first: a thread to a position.
    """
    WIDE: tl.constexpr = 4 if H >= 4 else H
    high = tl.arange(0, H // WIDE)[None, :, None] * (M * WIDE)
    return STAGE * (M * H) + tl.arange(0, M)[:, None, None] * WIDE + high + tl.arange(0, WIDE)[None, None, :]


@triton.jit
def partners(x, ABOVE: tl.constexpr, BELOW: tl.constexpr, ROWS: tl.constexpr, M: tl.constexpr):
    """Split (2·ABOVE·BELOW, ROWS, M) into the two sides of its pairs, each (ABOVE, BELOW, ROWS, M)."""
    return tl.split(tl.permute(tl.reshape(x, (ABOVE, 2, BELOW, ROWS, M)), (0, 2, 3, 4, 1)))


@triton.jit
def rejoin(a, b, ABOVE: tl.constexpr, BELOW: tl.constexpr, ROWS: tl.constexpr, M: tl.constexpr):
    return tl.reshape(tl.permute(tl.join(a, b), (0, 4, 1, 2, 3)), (2 * ABOVE * BELOW, ROWS, M))


@triton.jit
def step(a, b, u, v, TRANSPOSE: tl.constexpr, FAST: tl.constexpr):
    """Rotate the pair (a, b); the formulas are in the module's docstring."""
    if FAST:
        if TRANSPOSE:
            p = a + u * b
            q = b - v * a
        else:
            p = a - v * b
            q = b + u * a
    else:
        if TRANSPOSE:
            p = u * a + v * b
            q = u * b - v * a
        else:
            p = u * a - v * b
            q = u * b + v * a
    return p, q


@triton.jit
def load_coefficients(
    ptr, offsets, H: tl.constexpr, M: tl.constexpr, ABOVE: tl.constexpr, BELOW: tl.constexpr
):
    return tl.reshape(tl.permute(tl.load(ptr + offsets), (1, 2, 0)), (ABOVE, BELOW, 1, M))


@triton.jit
def _stage(
    x, u_ptr, v_ptr, BIT: tl.constexpr, FIRST: tl.constexpr, H: tl.constexpr,
    ROWS: tl.constexpr, M: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    ABOVE: tl.constexpr = H // 2**BIT
    BELOW: tl.constexpr = 2**BIT
    offsets = table_offsets(FIRST + BIT, H, M)
    u = load_coefficients(u_ptr, offsets, H, M, ABOVE, BELOW)
    v = load_coefficients(v_ptr, offsets, H, M, ABOVE, BELOW)
    a, b = partners(x, ABOVE, BELOW, ROWS, M)
    a, b = step(a, b, u, v, TRANSPOSE, FAST)
    return rejoin(a, b, ABOVE, BELOW, ROWS, M)


@triton.jit
def to_group(x, RADIX: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ROWS: tl.constexpr):
    """(ROWS, N) → (RADIX, ROWS, M): the bits of a group first."""
    x = tl.permute(tl.reshape(x, (ROWS, HIGH, RADIX, LOW)), (2, 0, 1, 3))
    return tl.reshape(x, (RADIX, ROWS, HIGH * LOW))


@triton.jit
def from_group(x, RADIX: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ROWS: tl.constexpr):
    x = tl.permute(tl.reshape(x, (RADIX, ROWS, HIGH, LOW)), (1, 2, 0, 3))
    return tl.reshape(x, (ROWS, HIGH * RADIX * LOW))


@triton.jit
def _group(
    x, u_ptr, v_ptr, GROUP: tl.constexpr, GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr,
    ROWS: tl.constexpr, UP: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    r: tl.constexpr = radix(GROUP, GROUPS, BITS)
    FIRST: tl.constexpr = first_bit(GROUP, GROUPS, BITS)
    LOW: tl.constexpr = COLS * 2**FIRST
    HIGH: tl.constexpr = 2 ** (BITS - FIRST - r)
    x = to_group(x, 2**r, LOW, HIGH, ROWS)
    for i in tl.static_range(r):
        x = _stage(
            x, u_ptr, v_ptr, i if UP else r - 1 - i, FIRST, 2 ** (r - 1), ROWS, HIGH * LOW, TRANSPOSE, FAST
        )  # fmt: skip
    return from_group(x, 2**r, LOW, HIGH, ROWS)


@triton.jit
def whole_sweep(
    x, u_ptr, v_ptr, GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr,
    ROWS: tl.constexpr, UP: tl.constexpr, TRANSPOSE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """All stages of a pass once: strides growing (UP) or falling."""
    for i in tl.static_range(GROUPS):
        x = _group(
            x, u_ptr, v_ptr, i if UP else GROUPS - 1 - i, GROUPS, BITS, COLS, ROWS, UP, TRANSPOSE, FAST
        )  # fmt: skip
    return x


@triton.jit
def _coordinates(index, tile, COLS: tl.constexpr, BITS: tl.constexpr, STRIDE: tl.constexpr):
    """Coordinate in the vector of element ``index`` of tile ``tile``; int64, since n times a row may pass
    2^31.
    """
    if COLS == 1:
        coordinates = tile.to(tl.int64) * 2**BITS + index
    else:
        blocks: tl.constexpr = STRIDE // COLS  # column blocks side by side between two strides
        base = (tile // blocks).to(tl.int64) * (STRIDE * 2**BITS) + (tile % blocks) * COLS
        coordinates = base + (index // COLS) * STRIDE + index % COLS
    return coordinates


@triton.jit
def _tile_offsets(
    rows, tile, n, n_rows, GROUP: tl.constexpr, EVEN: tl.constexpr, GROUPS: tl.constexpr,
    BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Offsets and mask of a tile: as (ROWS, N) if GROUP < 0, else as (M, ROWS, 2^r), how that group wants it.

    In the second form neighbouring threads take neighbouring coordinates one at a time. The hint stops the
    compiler from giving each thread four of them, to be exchanged afterwards.
    """
    N: tl.constexpr = COLS * 2**BITS
    if GROUP < 0:
        coordinates = _coordinates(tl.arange(0, N), tile, COLS, BITS, STRIDE)
        offsets = rows[:, None] * n + coordinates[None, :]
        mask = (rows < n_rows)[:, None]
        if not EVEN:
            mask = mask & (coordinates < n)[None, :]
    else:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        M: tl.constexpr = N // RADIX
        position = tl.arange(0, M)[:, None]
        index = (position // LOW) * (RADIX * LOW) + tl.arange(0, RADIX)[None, :] * LOW + position % LOW
        coordinates = _coordinates(index, tile, COLS, BITS, STRIDE)
        offsets = tl.max_contiguous(rows[None, :, None] * n + coordinates[:, None, :], (1, 1, 1))
        mask = (rows < n_rows)[None, :, None]
        if not EVEN:
            mask = mask & (coordinates < n)[:, None, :]
    return offsets, mask


@triton.jit
def load_tile(
    x_ptr, rows, tile, n, n_rows, DTYPE: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    offsets, mask = _tile_offsets(rows, tile, n, n_rows, GROUP, EVEN, GROUPS, BITS, COLS, STRIDE)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
    if GROUP >= 0:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        x = from_group(tl.permute(x, (2, 1, 0)), RADIX, LOW, COLS * 2**BITS // (RADIX * LOW), ROWS)
    return x


@triton.jit
def store_tile(
    y_ptr, x, rows, tile, n, n_rows, GROUP: tl.constexpr, EVEN: tl.constexpr, GROUPS: tl.constexpr,
    BITS: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    offsets, mask = _tile_offsets(rows, tile, n, n_rows, GROUP, EVEN, GROUPS, BITS, COLS, STRIDE)
    if GROUP >= 0:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        x = tl.permute(to_group(x, RADIX, LOW, COLS * 2**BITS // (RADIX * LOW), ROWS), (2, 1, 0))
    tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_diagonal(
    ptr, tile, n, EVEN: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr
):  # fmt: skip
    coordinates = _coordinates(tl.arange(0, COLS * 2**BITS), tile, COLS, BITS, STRIDE)
    if EVEN:  # noqa: SIM108 (the compiler takes one branch)
        diagonal = tl.load(ptr + coordinates)
    else:
        diagonal = tl.load(ptr + coordinates, mask=coordinates < n, other=0.0)
    return diagonal[None, :]


@triton.jit
def rotate_kernel(
    x_ptr, y_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, scale_ptr, middle_ptr,
    n, n_rows, row_blocks, tiles, x_stride, y_stride, table_stride, scale_stride, middle_stride,
    TO_BASIS: tl.constexpr, FROM_BASIS: tl.constexpr, MIDDLE: tl.constexpr, UP: tl.constexpr, FAST: tl.constexpr,
    DEPTH: tl.constexpr, EVEN: tl.constexpr, QUADRATIC: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One pass over the vectors: Qᵀ (TO_BASIS), then a diagonal (MIDDLE), then Q (FROM_BASIS), each optional.

    UP says which way the strides of Q go; those of Qᵀ go the other way. With QUADRATIC the pass ends in the middle with
    Σ d w², one number a vector and tile. The tables come twice, as u, v and u_again, v_again: from the same pointer the
    compiler would keep all coefficients of Qᵀ in registers until Q needs them. Sweep d of the fast form ends (Qᵀ) or
    begins (Q) with a multiplication by its scales; those of the innermost sweep are part of the diagonal.
    """
    program = tl.program_id(0)
    block = (program // tiles) % row_blocks
    tile = program % tiles
    batch = (program // tiles // row_blocks).to(tl.int64)
    rows = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_ptr += batch * x_stride
    SWEEP: tl.constexpr = BITS * (COLS * 2**BITS // 2)
    u_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    v_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    u_again_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    v_again_ptr += batch * table_stride + tile.to(tl.int64) * SWEEP
    sweep = tl.cast(tiles, tl.int64) * SWEEP
    scale_ptr += batch * scale_stride
    DTYPE: tl.constexpr = u_ptr.dtype.element_ty

    FIRST_UP: tl.constexpr = (not UP) if TO_BASIS else UP
    x = load_tile(
        x_ptr, rows, tile, n, n_rows, DTYPE, direct_group(FIRST_UP, True, GROUPS, COLS, DIRECT), EVEN,
        GROUPS, BITS,
        COLS, ROWS, STRIDE,
    )  # fmt: skip
    if TO_BASIS:
        for d in range(DEPTH - 1):
            x = whole_sweep(
                x, u_ptr + d * sweep, v_ptr + d * sweep, GROUPS, BITS, COLS, ROWS, not UP, True, FAST
            )  # fmt: skip
            if FAST:
                x = x * _load_diagonal(scale_ptr + d * n, tile, n, EVEN, BITS, COLS, STRIDE)
        last = (DEPTH - 1) * sweep
        x = whole_sweep(x, u_ptr + last, v_ptr + last, GROUPS, BITS, COLS, ROWS, not UP, True, FAST)
    if QUADRATIC:
        diagonal = _load_diagonal(middle_ptr + batch * middle_stride, tile, n, EVEN, BITS, COLS, STRIDE)
        total = tl.sum(x * x * diagonal, axis=1)
        tl.store(y_ptr + (batch * n_rows + rows) * tiles + tile, total, mask=rows < n_rows)
    else:
        if MIDDLE:
            x = x * _load_diagonal(middle_ptr + batch * middle_stride, tile, n, EVEN, BITS, COLS, STRIDE)
        if FROM_BASIS:
            last = (DEPTH - 1) * sweep
            x = whole_sweep(
                x, u_again_ptr + last, v_again_ptr + last, GROUPS, BITS, COLS, ROWS, UP, False, FAST
            )
            for i in range(DEPTH - 1):
                d = DEPTH - 2 - i
                if FAST:
                    x = x * _load_diagonal(scale_ptr + d * n, tile, n, EVEN, BITS, COLS, STRIDE)
                x = whole_sweep(
                    x, u_again_ptr + d * sweep, v_again_ptr + d * sweep, GROUPS, BITS, COLS, ROWS, UP, False,
                    FAST
                )  # fmt: skip
        LAST_UP: tl.constexpr = UP if FROM_BASIS else (not UP)
        store_tile(
            y_ptr + batch * y_stride, x, rows, tile, n, n_rows, direct_group(LAST_UP, False, GROUPS, COLS,
            DIRECT),
            EVEN, GROUPS, BITS, COLS, ROWS, STRIDE,
        )  # fmt: skip
