"""Gluon kernel for butterflies on 2048 coordinates in half precision: three rounds of blocks of 16.

It works as `gluon.blocks` does. Three rounds take less room than two: 16 numbers per coordinate and round, where two
rounds would take 96 in all. Matrices are the left factors here, because vectors as right factors come in tiles of 8
instead of 16. Two rounds' matrices are in registers, the middle one's in shared memory.

A coordinate has 11 bits. The low round mixes bits 0–3 and the middle round bits 4–7. The high round has blocks of bits
7–10, but only the stages of bits 8–10: bit 7 has been done. The blocks of the low and middle rounds are counted by the
other bits in order. Those of the high round are counted by bits 0–2, then 4–6, then 3, the first slowest: so a thread
has 8 neighbouring coordinates, which are 16 bytes of memory.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.blocks import bring, places
from swallowtail.kernels.gpu.triton_private import async_copy, gl, gluon, mma_v2, thread_barrier


@gluon.constexpr_function
def _products(WARPS):
    """The layout of the sums of a round, (blocks, size, ROWS): a warp has whole blocks."""
    return gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])


@gluon.constexpr_function
def _operand(INDEX, WARPS):
    """The layout of a round's matrices (INDEX 0) or vectors (INDEX 1)."""
    return gl.DotOperandLayout(INDEX, _products(WARPS), 2)


@gluon.jit
def _matrices(ptr, WARPS: gl.constexpr):
    """The matrices of a round, (128, to, from), in registers."""
    LAYOUT: gl.constexpr = _operand(0, WARPS)
    block = gl.arange(0, 128, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))[:, None, None]
    row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    column = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    return gl.load(ptr + block * 256 + row * 16 + column)


@gluon.jit
def _round(matrices, x, DTYPE: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr):
    """A product per block; sums in float32, rounded."""
    return mma_v2(matrices, x, gl.zeros([128, 16, ROWS], gl.float32, _products(WARPS))).to(DTYPE)


@gluon.jit
def _regroup(x, BITS: gl.constexpr, ORDER: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr):
    """Exchange (128, 16, ROWS) between threads: the first two axes as the parts BITS, put into another order."""
    x = gl.reshape(x, BITS + (ROWS,))  # noqa: RUF005 (Triton knows no starred tuple)
    x = gl.reshape(gl.permute(x, ORDER), (128, 16, ROWS))
    return gl.convert_layout(x, _operand(1, WARPS))


@gluon.jit
def thirds_kernel(
    x_ptr, y_ptr, first_ptr, second_ptr, third_ptr, n_rows, tiles, workers,
    LOW_FIRST: gl.constexpr, FULL: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """y = three rounds on x (n_rows, 2048): low, middle, high (LOW_FIRST), or the other way.

    Args:
        x_ptr: vectors.
        y_ptr: where the result goes.
        first_ptr: the matrices of the first round, (128, to, from).
        second_ptr: of the second round.
        third_ptr: of the third round.
        n_rows: vectors.
        tiles: of ROWS vectors.
        workers: programs.
        LOW_FIRST: the order of the rounds.
        FULL: n_rows is a multiple of ROWS.
        ROWS: vectors per tile.
        STAGES: tiles in shared memory.
        WARPS: warps per program.
    """
    N: gl.constexpr = 2048
    DTYPE: gl.constexpr = x_ptr.dtype.element_ty
    first = _matrices(first_ptr, WARPS)
    third = _matrices(third_ptr, WARPS)
    SWIZZLED: gl.constexpr = gl.SwizzledSharedLayout(8, 4, 2, [2, 1, 0])
    second = gl.allocate_shared_memory(DTYPE, [128, 16, 16], SWIZZLED)
    second.store(_matrices(second_ptr, WARPS))
    COPIED: gl.constexpr = gl.BlockedLayout([1, 1, 8], [16, 1, 2], [WARPS // 2, 2, 1], [2, 0, 1])
    block = gl.arange(0, 128, gl.SliceLayout(1, gl.SliceLayout(2, COPIED)))[:, None, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(2, COPIED)))[None, :, None]
    at = block * 16 + gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(1, COPIED)))[None, None, :]
    stages = gl.allocate_shared_memory(DTYPE, [STAGES, 128, ROWS, 16], SWIZZLED)
    STORED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [WARPS // 8, 8], [1, 0])
    out_row = gl.arange(0, ROWS, gl.SliceLayout(1, STORED))[:, None]
    out_at = gl.arange(0, N, gl.SliceLayout(0, STORED))[None, :]
    first_tile = gl.program_id(0)
    for s in gl.static_range(STAGES - 1):
        source = places(x_ptr, first_tile + s * workers, row, at, n_rows, N, tiles, ROWS, FULL)
        bring(stages.index(s), source, at, N, True)
    i = 0
    for tile in range(first_tile, tiles, workers):
        async_copy.wait_group(STAGES - 2)
        thread_barrier()
        # shape: (bits 10–4, bits 3–0, ROWS)
        x = stages.index(i % STAGES).permute((0, 2, 1)).load(_operand(1, WARPS))
        source = places(x_ptr, tile + (STAGES - 1) * workers, row, at, n_rows, N, tiles, ROWS, FULL)
        bring(stages.index((i + STAGES - 1) % STAGES), source, at, N, True)
        if LOW_FIRST:
            x = _round(first, x, DTYPE, ROWS, WARPS)
            # (bits 10–8, 7–4, 3–0) → (10–8, 3–0, 7–4)
            x = _regroup(x, (8, 16, 16), (0, 2, 1, 3), ROWS, WARPS)
            x = _round(second.load(_operand(0, WARPS)), x, DTYPE, ROWS, WARPS)
            # (10–8, 3, 2–0, 7, 6–4) → (2–0, 6–4, 3, 10–8, 7)
            x = _regroup(x, (8, 2, 8, 2, 8), (2, 4, 1, 0, 3, 5), ROWS, WARPS)
            x = _round(third, x, DTYPE, ROWS, WARPS)
            # (2–0, 6–4, 3, 10–7) → (10–7, 6–4, 3, 2–0)
            x = gl.permute(gl.reshape(x, (8, 8, 2, 16, ROWS)), (4, 3, 1, 2, 0))
        else:
            # (10–7, 6–4, 3, 2–0) → (2–0, 6–4, 3, 10–7)
            x = _regroup(x, (16, 8, 2, 8), (3, 1, 2, 0, 4), ROWS, WARPS)
            x = _round(first, x, DTYPE, ROWS, WARPS)
            # (2–0, 6–4, 3, 10–8, 7) → (10–8, 3, 2–0, 7, 6–4)
            x = _regroup(x, (8, 8, 2, 8, 2), (3, 2, 0, 4, 1, 5), ROWS, WARPS)
            x = _round(second.load(_operand(0, WARPS)), x, DTYPE, ROWS, WARPS)
            # (10–8, 3–0, 7–4) → (10–8, 7–4, 3–0)
            x = _regroup(x, (8, 16, 16), (0, 2, 1, 3), ROWS, WARPS)
            x = gl.permute(_round(third, x, DTYPE, ROWS, WARPS), (2, 0, 1))
        x = gl.convert_layout(gl.reshape(x, (ROWS, N)), STORED)
        gl.store(places(y_ptr, tile, out_row, out_at, n_rows, N, tiles, ROWS, FULL), x)
        i += 1  # noqa: SIM113 (Gluon knows no enumerate)
    async_copy.wait_group(0)
