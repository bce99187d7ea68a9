"""Gluon kernel for butterflies in half precision on tensor cores: rounds of small matrices.

The stages of a butterfly on N = A · B coordinates come in two halves. With c = a B + b, the stages of strides below B
mix the B coordinates of each a: one matrix (B, B) per a. This is the low round. The other stages mix the A coordinates
of each b: one matrix (A, A) per b. This is the high round. Matrices are made once from the angles (`block_tables`), and
a round is a batch of small products.

Programs are persistent. Each keeps the matrices in its registers, as tensor cores take them, and walks through tiles of
ROWS vectors. Asynchronous copies bring the next tiles to shared memory meanwhile. Between two rounds, the tile is
rounded to its storage dtype and exchanged between threads. Sums are taken in float32.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.triton_private import async_copy, gl, gluon, mma_v2, thread_barrier


@gluon.constexpr_function
def _products(WARPS):
    """The layout of the sums of a round, (blocks, ROWS, size): a warp has whole blocks."""
    return gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])


@gluon.constexpr_function
def _operand(INDEX, SIZE, WARPS, NEIGHBOURS):
    """The layout of a round's vectors (INDEX 0) or matrices (INDEX 1) with SIZE coordinates per block.

    Four threads share the coordinates of a block; each has at most so many neighbours.
    """
    return gl.DotOperandLayout(INDEX, _products(WARPS), min(NEIGHBOURS, SIZE // 4))


@gluon.constexpr_function
def _copied(A, B, WARPS):
    """The layout of asynchronous copies to a tile (A, ROWS, B): 16 bytes per thread, along a vector."""
    lanes = B // 8
    along = min(WARPS, max(1, A * lanes // 32))
    return gl.BlockedLayout([1, 1, 8], [32 // lanes, 1, lanes], [along, WARPS // along, 1], [2, 0, 1])


@gluon.constexpr_function
def _stored(N, WARPS):
    """The layout in which vectors are stored, (ROWS, N): 16 bytes per thread."""
    along = min(WARPS, max(1, N // 256))
    return gl.BlockedLayout([1, 8], [1, 32], [WARPS // along, along], [1, 0])


@gluon.jit
def _matrices(ptr, BLOCKS: gl.constexpr, SIZE: gl.constexpr, WARPS: gl.constexpr, NEIGHBOURS: gl.constexpr):
    """The matrices of a round, (BLOCKS, to, from) in memory, as the right factors (BLOCKS, from, to) in registers."""
    LAYOUT: gl.constexpr = _operand(1, SIZE, WARPS, NEIGHBOURS)
    block = gl.arange(0, BLOCKS, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    column = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    return gl.load(ptr + block * (SIZE * SIZE) + row + column * SIZE)


@gluon.jit
def _round(x, matrices, WARPS: gl.constexpr):
    """A product per block; sums in float32."""
    zero = gl.zeros([x.shape[0], x.shape[1], x.shape[2]], gl.float32, _products(WARPS))
    return mma_v2(x, matrices, zero)


@gluon.jit
def _exchange(sums, DTYPE: gl.constexpr, WARPS: gl.constexpr, NEIGHBOURS: gl.constexpr):
    """Rounded sums of the low round, (A, ROWS, B), as vectors of the high round, (B, ROWS, A), or the other way."""
    return gl.convert_layout(
        gl.permute(sums.to(DTYPE), (2, 1, 0)), _operand(0, sums.shape[0], WARPS, NEIGHBOURS)
    )


@gluon.jit
def places(
    ptr, tile, row, at, n_rows, LENGTH: gl.constexpr, tiles, ROWS: gl.constexpr, FULL: gl.constexpr
):  # fmt: skip
    """Addresses of a tile's numbers, at coordinates ``at`` of its vectors ``row``. Beyond the last tile: that one's.

    Rows beyond the end repeat the last row: they compute and store the same numbers again. Where no tile has such rows
    (FULL), threads keep offsets within a tile: these have 32 bits and are computed once.
    """
    tile = gl.minimum(tile, tiles - 1)
    if FULL:
        return ptr + tile.to(gl.int64) * (ROWS * LENGTH) + (row * LENGTH + at)
    return ptr + gl.minimum(tile * ROWS + row, n_rows - 1).to(gl.int64) * LENGTH + at


@gluon.jit
def bring(stage, source, at, LENGTH: gl.constexpr, EVEN: gl.constexpr):
    """Begin to copy a tile to shared memory; coordinates beyond the vector are zero."""
    if EVEN:
        async_copy.async_copy_global_to_shared(stage, source)
    else:
        async_copy.async_copy_global_to_shared(stage, source, mask=at < LENGTH)
    async_copy.commit_group()


@gluon.jit
def blocks_kernel(
    x_ptr, y_ptr, outer_ptr, inner_ptr, last_ptr, gain_ptr, n_rows, tiles, workers,
    LOW_FIRST: gl.constexpr, BOTH: gl.constexpr, GAIN: gl.constexpr, FULL: gl.constexpr, LENGTH: gl.constexpr,
    A: gl.constexpr, B: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, SHARED: gl.constexpr,
    NEIGHBOURS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """y = two rounds on x, or three (BOTH): low and high (LOW_FIRST), high and low, or outer, inner, outer.

    Vectors are cut into column blocks of A · B coordinates. A program works on one column block.

    Args:
        x_ptr: vectors (n_rows, LENGTH).
        y_ptr: where the result goes, in the same shape.
        outer_ptr: the matrices of the first round, (column blocks, blocks, size, size): to, from.
        inner_ptr: of the second round.
        last_ptr: of the third round.
        gain_ptr: one float32 factor of the result (GAIN).
        n_rows: vectors.
        tiles: of ROWS vectors.
        workers: programs per column block.
        LOW_FIRST: the first round is the low one.
        BOTH: there are three rounds.
        GAIN: there is a factor.
        FULL: n_rows is a multiple of ROWS.
        LENGTH: coordinates of a vector, a multiple of 8, so that every access has 16 bytes. It is a constant because
            address arithmetic would take registers that the matrices need.
        A: coordinates per block of the high round.
        B: coordinates per block of the low round.
        ROWS: vectors per tile.
        STAGES: tiles in shared memory.
        SHARED: the matrices of the second round stay in shared memory, where registers hold only two rounds'.
        NEIGHBOURS: coordinates of a block that a thread has side by side, 4 or 8.
        WARPS: warps per program.
    """
    N: gl.constexpr = A * B
    DTYPE: gl.constexpr = x_ptr.dtype.element_ty
    BLOCKS: gl.constexpr = A if LOW_FIRST else B  # of the first round
    SIZE: gl.constexpr = B if LOW_FIRST else A
    COLUMN_BLOCKS: gl.constexpr = (LENGTH + N - 1) // N
    EVEN: gl.constexpr = LENGTH % N == 0
    column = gl.program_id(0) % COLUMN_BLOCKS
    first_tile = gl.program_id(0) // COLUMN_BLOCKS

    outer = _matrices(outer_ptr + column * (N * SIZE), BLOCKS, SIZE, WARPS, NEIGHBOURS)
    inner_ptr += column * (N * BLOCKS)
    inner = _matrices(inner_ptr, SIZE, BLOCKS, WARPS, NEIGHBOURS)
    if SHARED:
        PLAIN: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 4, [2, 1, 0])
        kept = gl.allocate_shared_memory(DTYPE, [SIZE, BLOCKS, BLOCKS], PLAIN)
        kept.store(inner)
    if BOTH:
        last = _matrices(last_ptr + column * (N * SIZE), BLOCKS, SIZE, WARPS, NEIGHBOURS)

    COPIED: gl.constexpr = _copied(A, B, WARPS)
    a = gl.arange(0, A, gl.SliceLayout(1, gl.SliceLayout(2, COPIED)))[:, None, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(2, COPIED)))[None, :, None]
    b = gl.arange(0, B, gl.SliceLayout(0, gl.SliceLayout(1, COPIED)))[None, None, :]
    at = column * N + a * B + b
    TILE: gl.constexpr = gl.SwizzledSharedLayout(8, 2 if B == 32 else 4, B // 8, [2, 1, 0])
    stages = gl.allocate_shared_memory(DTYPE, [STAGES, A, ROWS, B], TILE)
    STORED: gl.constexpr = _stored(N, WARPS)
    out_row = gl.arange(0, ROWS, gl.SliceLayout(1, STORED))[:, None]
    out_at = column * N + gl.arange(0, N, gl.SliceLayout(0, STORED))[None, :]

    for s in gl.static_range(STAGES - 1):
        source = places(x_ptr, first_tile + s * workers, row, at, n_rows, LENGTH, tiles, ROWS, FULL)
        bring(stages.index(s), source, at, LENGTH, EVEN)
    i = 0
    for tile in range(first_tile, tiles, workers):
        async_copy.wait_group(STAGES - 2)
        thread_barrier()
        x = stages.index(i % STAGES).load(_operand(0, B, WARPS, NEIGHBOURS))  # (A, ROWS, B)
        source = places(x_ptr, tile + (STAGES - 1) * workers, row, at, n_rows, LENGTH, tiles, ROWS, FULL)
        bring(stages.index((i + STAGES - 1) % STAGES), source, at, LENGTH, EVEN)
        if not LOW_FIRST:
            x = gl.convert_layout(gl.permute(x, (2, 1, 0)), _operand(0, A, WARPS, NEIGHBOURS))
        sums = _round(x, outer, WARPS)
        if SHARED:
            sums = _round(
                _exchange(sums, DTYPE, WARPS, NEIGHBOURS),
                kept.load(_operand(1, BLOCKS, WARPS, NEIGHBOURS)),
                WARPS,
            )
        else:
            sums = _round(_exchange(sums, DTYPE, WARPS, NEIGHBOURS), inner, WARPS)
        if BOTH:
            sums = _round(_exchange(sums, DTYPE, WARPS, NEIGHBOURS), last, WARPS)
        if GAIN:
            sums = sums * gl.load(gain_ptr)
        y = sums.to(DTYPE)
        if LOW_FIRST == BOTH:  # noqa: SIM108 (the compiler takes one branch)
            y = gl.permute(y, (1, 0, 2))  # (A, ROWS, B) → (ROWS, A, B)
        else:
            y = gl.permute(y, (1, 2, 0))  # (B, ROWS, A) → (ROWS, A, B)
        y = gl.convert_layout(gl.reshape(y, (ROWS, N)), STORED)
        target = places(y_ptr, tile, out_row, out_at, n_rows, LENGTH, tiles, ROWS, FULL)
        if EVEN:
            gl.store(target, y)
        else:
            gl.store(target, y, mask=out_at < LENGTH)
        i += 1  # noqa: SIM113 (Gluon knows no enumerate)
    async_copy.wait_group(0)
