"""Gluon kernel for gradients of rounds of small groups: results and their gradients walk back together.

As in `gluon.rounds`, with 2 · LANES words per coordinate in shared memory: the vectors y, then their gradients g.
Before a step is undone, its groups' sums Σ g yᵀ over the tile go to memory: a program writes those of its first tile,
and adds the others to them, always in the same order. From them `triton.sweeps` makes the gradients of angles.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.pairs import peek, poke, shared_address
from swallowtail.kernels.gpu.gluon.rounds import factor, multiplied, poke_two, products, step_tables
from swallowtail.kernels.gpu.triton_private import gl, gluon, thread_barrier

SHARES = gl.constexpr(2)  # warps that share a group


@gluon.constexpr_function
def _copied(LANES, WARPS):
    """The layout of a piece of the vectors, (LANES, columns): 64 bytes of each of eight vectors per warp."""
    return gl.BlockedLayout([1, 4], [8, 4], [1, WARPS], [1, 0])


@gluon.jit
def _place(coordinate, LANES: gl.constexpr, N: gl.constexpr):
    """Where in bytes a coordinate's row begins; beyond the last, the last spare row. As `round_plan.wide_places`."""
    slot = gl.minimum((coordinate & -4) | ((coordinate + (coordinate >> 2)) & 3), N - 1)
    return slot * (LANES * 8) + (slot & 1) * 64 + (slot & 2) * 16


@gluon.jit
def _peek_row(address, NEIGHBOURS: gl.constexpr):
    """Load neighbours in a row of shared memory at once, without a barrier."""
    if NEIGHBOURS == 4:
        value = gl.inline_asm_elementwise(
            "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r,r,r,r", [address],
            dtype=gl.float32, is_pure=False, pack=4,
        )  # fmt: skip
    else:
        value = gl.inline_asm_elementwise(
            "ld.shared.v2.f32 {$0, $1}, [$2];", "=f,=f,r,r", [address], dtype=gl.float32, is_pure=False, pack=2
        )  # fmt: skip
    return value


@gluon.jit
def _add_two(pointer, value, VECTORS: gl.constexpr):
    """Add to two neighbours in memory, at once where the device has such an instruction (VECTORS)."""
    if VECTORS:
        gl.inline_asm_elementwise(
            "red.global.add.v2.f32 [$2], {$4, $5}; mov.b32 $0, 0; mov.b32 $1, 0;", "=r,=r,l,l,f,f",
            [pointer.to(gl.int64), value], dtype=gl.int32, is_pure=False, pack=2,
        )  # fmt: skip
    else:
        gl.inline_asm_elementwise(
            "red.global.add.f32 [$1], $2; mov.b32 $0, 0;", "=r,l,f", [pointer.to(gl.int64), value],
            dtype=gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@gluon.jit
def _add_sums(
    sums_ptr, place_ptr, step, begun, EXACT: gl.constexpr, VECTORS: gl.constexpr, SIZE: gl.constexpr,
    LANES: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """Add Σ g yᵀ of a step's groups, (GROUPS, SIZE, SIZE), to those of earlier tiles, if any have begun."""
    LEFT: gl.constexpr = factor(0, LANES, GROUPS, SHARES)
    RIGHT: gl.constexpr = factor(1, LANES, GROUPS, SHARES)
    OUT: gl.constexpr = products(GROUPS, SHARES)
    NEIGHBOURS: gl.constexpr = 2 if LANES == 16 else 4
    place_ptr += step * (GROUPS * SIZE)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, LEFT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, LEFT)))[None, :, None]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, gl.SliceLayout(1, LEFT)))[None, None, :]
    place = gl.load(place_ptr + group * SIZE + row)
    g = _peek_row(shared_address(((lane + LANES) * 4) ^ place), NEIGHBOURS)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, RIGHT)))[:, None, None]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, gl.SliceLayout(2, RIGHT)))[None, :, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, RIGHT)))[None, None, :]
    place = gl.load(place_ptr + group * SIZE + row)
    y = _peek_row(shared_address((lane * 4) ^ place), NEIGHBOURS)
    sums = multiplied(g, y, gl.zeros([GROUPS, SIZE, SIZE], gl.float32, OUT), EXACT)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, OUT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, OUT)))[None, :, None]
    column = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, OUT)))[None, None, :]
    sums_ptr += (step * GROUPS + group) * (SIZE * SIZE) + row * SIZE + column
    if begun:
        _add_two(sums_ptr, sums, VECTORS)
    else:
        gl.store(sums_ptr, sums)


@gluon.jit
def _steps(
    matrix_ptr, place_ptr, sums_ptr, steps, begun, FORWARD: gl.constexpr, EXACT: gl.constexpr, VECTORS: gl.constexpr,
    SIZE: gl.constexpr, LANES: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """All steps in order (FORWARD), or from the last to the first, with their sums."""
    RIGHT: gl.constexpr = factor(1, SIZE, GROUPS, SHARES)
    OUT: gl.constexpr = products(GROUPS, SHARES)
    from_lane = gl.arange(0, 2 * LANES, gl.SliceLayout(0, gl.SliceLayout(1, RIGHT)))[None, None, :] * 4
    to_lane = gl.arange(0, 2 * LANES, gl.SliceLayout(0, gl.SliceLayout(1, OUT)))[None, None, :] * 4
    from_base = shared_address(from_lane * 0)
    to_base = shared_address(to_lane * 0)
    step = 0 if FORWARD else steps - 1
    matrices, read, written = step_tables(matrix_ptr, place_ptr, step, SIZE, GROUPS, SHARES)
    for k in range(steps):
        following = gl.minimum(k + 1, steps - 1) if FORWARD else gl.maximum(steps - 2 - k, 0)
        next_matrices, next_read, next_written = step_tables(
            matrix_ptr, place_ptr, following, SIZE, GROUPS, SHARES
        )
        rows = peek(from_base + (from_lane ^ read))
        _add_sums(sums_ptr, place_ptr, step, begun, EXACT, VECTORS, SIZE, LANES, GROUPS)
        y = multiplied(matrices, rows, gl.zeros([GROUPS, SIZE, 2 * LANES], gl.float32, OUT), EXACT)
        thread_barrier()  # another warp reads the same rows
        poke_two(to_base + (to_lane ^ written), y)
        thread_barrier()
        matrices = next_matrices
        read = next_read
        written = next_written
        step = following


@gluon.jit
def round_gradients_kernel(
    y_ptr, g_ptr, out_ptr, matrix_ptr, place_ptr, sums_ptr, n_rows, n_units, steps, tiles, programs,
    TRANSPOSE: gl.constexpr, SUMS: gl.constexpr, EXACT: gl.constexpr, VECTORS: gl.constexpr, UNIT: gl.constexpr,
    N: gl.constexpr, SIZE: gl.constexpr, LANES: gl.constexpr, COLUMNS: gl.constexpr, GROUPS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Qᵀ g, or Q g (TRANSPOSE), and the sums Σ g yᵀ of every group before its step is undone.

    Args:
        y_ptr: the results Q x, or Qᵀ x (TRANSPOSE), (n_rows, n) with n = UNIT · n_units.
        g_ptr: their gradients.
        out_ptr: where the gradients of x go.
        matrix_ptr: the transposed matrices, or the matrices (TRANSPOSE), (steps, GROUPS, SIZE, SIZE).
        place_ptr: where the rows of each group begin, in bytes, (steps, GROUPS, SIZE).
        sums_ptr: where the sums of each program go, (programs, steps, GROUPS, SIZE, SIZE).
        n_rows: vectors.
        n_units: n / UNIT.
        steps: of Qᵀ in order, of Q in the opposite order.
        tiles: of LANES vectors.
        programs: that share the tiles.
        TRANSPOSE: as above.
        SUMS: y has the rows of Σ g yᵀ. Their gradients are unit vectors, which are not read, and nothing goes to out.
        EXACT: products as exact as float32, in three parts.
        VECTORS: two neighbours can be added at once.
        UNIT: 4 or 1: so many numbers can be accessed at once.
        N: rows in shared memory: n, rounded up to a multiple of 16, and 4 spare ones.
        SIZE: coordinates per group, 16 or 32.
        LANES: vectors per tile, 16 or 32.
        COLUMNS: coordinates that are copied at a time.
        GROUPS: per step.
        WARPS: warps per program.
    """
    n = n_units * UNIT
    TILE: gl.constexpr = _copied(LANES, WARPS)
    memory = gl.allocate_shared_memory(gl.float32, [N, 2 * LANES], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([2 * LANES], gl.float32, gl.BlockedLayout([1], [32], [WARPS], [0])))
    thread_barrier()
    # Padding reads the four spare rows, which therefore have to be finite.
    spare = gl.arange(0, 8 * LANES, gl.BlockedLayout([1], [32], [WARPS], [0]))
    poke(shared_address(((N - 4) * (2 * LANES) + spare) * 4), spare.to(gl.float32) * 0)
    lane = gl.arange(0, LANES, gl.SliceLayout(1, TILE))[:, None]
    index = gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    base = shared_address(lane * 0)
    program = gl.program_id(0)
    sums_ptr += program.to(gl.int64) * steps * (GROUPS * SIZE * SIZE)
    for tile in range(program, tiles, programs):
        row = tile.to(gl.int64) * LANES + lane
        for start in range(0, n, COLUMNS):
            column = start + index
            inside = (row < n_rows) & (column < n)
            y = gl.load(y_ptr + row * n + column, mask=inside, other=0.0).to(gl.float32)
            if SUMS:
                g = (row == column).to(gl.float32)
            else:
                g = gl.load(g_ptr + row * n + column, mask=inside, other=0.0).to(gl.float32)
            place = _place(column, LANES, N)
            poke(base + ((lane * 4) ^ place), y)
            poke(base + (((lane + LANES) * 4) ^ place), g)
        thread_barrier()
        _steps(
            matrix_ptr, place_ptr, sums_ptr, steps, tile != program, not TRANSPOSE, EXACT, VECTORS, SIZE, LANES,
            GROUPS,
        )  # fmt: skip
        for start in range(0, 0 if SUMS else n, COLUMNS):
            column = start + index
            g = peek(base + (((lane + LANES) * 4) ^ _place(column, LANES, N)))
            gl.store(
                out_ptr + row * n + column, g.to(out_ptr.dtype.element_ty), mask=(row < n_rows) & (column < n)
            )
        thread_barrier()
