"""Gluon kernel for rounds of small groups: vectors stay in shared memory, a group is one tensor-core product.

Shared memory has a row of LANES float32 numbers per coordinate, one for each vector of the tile. In a step every warp
multiplies one small matrix by the rows of its group, which it gathers by address; a barrier ends the step. The groups
of a step are disjoint. Gluon knows nothing of such addresses, so rows are read and written in inline PTX, and the
kernel must not exchange anything else through shared memory: every tensor has the layout in which it is used.

Banks of shared memory: a row begins at one of four quarters of the banks, by its number modulo 4. Rows shorter than 32
words do so in part by themselves; for the rest, pieces of eight words change places within a row (`_place`). The same
function mixes neighbouring coordinates, and `round_plan` orders those of a group, such that the four rows that a warp
accesses at a time have different numbers modulo 4, as far as possible.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.half_code import usual_code
from swallowtail.kernels.gpu.gluon.pairs import peek, poke, shared_address
from swallowtail.kernels.gpu.triton_private import gl, gluon, mma_v2, thread_barrier


@gluon.constexpr_function
def products(GROUPS, SHARES):
    """The layout of a step's results, (GROUPS, SIZE, LANES): so many warps share the lanes of a group."""
    return gl.NVMMADistributedLayout([2, 0], [GROUPS, 1, SHARES], [1, 16, 8])


@gluon.constexpr_function
def factor(INDEX, DEPTH, GROUPS, SHARES):
    """The layout of the left (INDEX 0) or right factor of products that sum over DEPTH numbers, 16 or a multiple of 32.

    A thread has two or four neighbours of them: with four of 16, every number would be loaded twice.
    """
    return gl.DotOperandLayout(INDEX, products(GROUPS, SHARES), 2 if DEPTH == 16 else 4)


@gluon.constexpr_function
def _copied(LANES, WARPS):
    """The layout of a piece of the vectors, (LANES, columns): 64 bytes of each of eight vectors per warp."""
    return gl.BlockedLayout([1, 4], [8, 4], [1, WARPS], [1, 0])


@gluon.jit
def poke_two(address, value):
    """Store two neighbours to shared memory, without a barrier."""
    gl.inline_asm_elementwise(
        "st.shared.v2.f32 [$2], {$4, $5}; mov.b32 $0, 0; mov.b32 $1, 0;", "=r,=r,r,r,f,f", [address, value],
        dtype=gl.int32, is_pure=False, pack=2
    )  # fmt: skip


@gluon.jit
def _note(own_word, first_word, x):
    """Set a vector's own word if a number is at least 2^-64, and the first word if one is 2^64 or more."""
    gl.inline_asm_elementwise(
        "{ .reg .b32 t; .reg .pred p; and.b32 t, $3, 0x7fffffff; setp.ge.u32 p, t, 0x1f800000; "
        "@p st.shared.b32 [$1], 1; setp.ge.u32 p, t, 0x5f800000; @p st.shared.b32 [$2], 1; mov.b32 $0, 0; }",
        "=r,r,r,f", [own_word, first_word, x], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _measure(own_word, x):
    """A vector's own word becomes the largest of itself and a number without its sign, as an integer."""
    gl.inline_asm_elementwise(
        "{ .reg .b32 t; and.b32 t, $2, 0x7fffffff; red.shared.max.u32 [$1], t; mov.b32 $0, 0; }",
        "=r,r,f", [own_word, x], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def rounded(x):
    """x rounded to the eleven leading bits that tensor cores take. They would cut off the rest, which adds up."""
    return ((x.to(gl.int32, bitcast=True) + 4096) & -8192).to(gl.float32, bitcast=True)


@gluon.jit
def step_tables(
    matrix_ptr, place_ptr, step, SIZE: gl.constexpr, GROUPS: gl.constexpr, SHARES: gl.constexpr
):  # fmt: skip
    """A step's matrices, and where the rows of its groups lie: as they are read, and as they are written."""
    LEFT: gl.constexpr = factor(0, SIZE, GROUPS, SHARES)
    RIGHT: gl.constexpr = factor(1, SIZE, GROUPS, SHARES)
    OUT: gl.constexpr = products(GROUPS, SHARES)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, LEFT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, LEFT)))[None, :, None]
    column = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, LEFT)))[None, None, :]
    matrices = gl.load(
        matrix_ptr + step * (GROUPS * SIZE * SIZE) + group * (SIZE * SIZE) + row * SIZE + column
    )
    place_ptr += step * (GROUPS * SIZE)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, RIGHT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, RIGHT)))[None, :, None]
    read = gl.load(place_ptr + group * SIZE + row)
    group = gl.arange(0, GROUPS, gl.SliceLayout(1, gl.SliceLayout(2, OUT)))[:, None, None]
    row = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, OUT)))[None, :, None]
    written = gl.load(place_ptr + group * SIZE + row)
    return matrices, read, written


@gluon.jit
def multiplied(left, right, y, EXACT: gl.constexpr):
    """y + left · right, as exact as float32 (EXACT), in three parts, or from factors rounded once."""
    if EXACT:
        leading_left = rounded(left)
        leading_right = rounded(right)
        y = mma_v2(left - leading_left, leading_right, y, input_precision="tf32")
        y = mma_v2(leading_left, right - leading_right, y, input_precision="tf32")
        y = mma_v2(leading_left, leading_right, y, input_precision="tf32")
    else:
        y = mma_v2(rounded(left), rounded(right), y, input_precision="tf32")
    return y


@gluon.jit
def _steps(
    matrix_ptr, place_ptr, steps, FORWARD: gl.constexpr, EXACT: gl.constexpr, SIZE: gl.constexpr,
    LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """All steps in order (FORWARD), or from the last to the first."""
    RIGHT: gl.constexpr = factor(1, SIZE, WARPS, 1)
    OUT: gl.constexpr = products(WARPS, 1)
    from_lane = gl.arange(0, LANES, gl.SliceLayout(0, gl.SliceLayout(1, RIGHT)))[None, None, :] * 4
    to_lane = gl.arange(0, LANES, gl.SliceLayout(0, gl.SliceLayout(1, OUT)))[None, None, :] * 4
    from_base = shared_address(from_lane * 0)
    to_base = shared_address(to_lane * 0)
    matrices, read, written = step_tables(matrix_ptr, place_ptr, 0 if FORWARD else steps - 1, SIZE, WARPS, 1)
    for k in range(steps):
        # Load the next step's tables before this step's rows: their latency is then hidden.
        following = gl.minimum(k + 1, steps - 1) if FORWARD else gl.maximum(steps - 2 - k, 0)
        next_matrices, next_read, next_written = step_tables(matrix_ptr, place_ptr, following, SIZE, WARPS, 1)
        rows = peek(from_base + (from_lane ^ read))
        y = gl.zeros([WARPS, SIZE, LANES], gl.float32, OUT)
        y = multiplied(matrices, rows, y, EXACT)
        poke_two(to_base + (to_lane ^ written), y)
        thread_barrier()
        matrices = next_matrices
        read = next_read
        written = next_written


@gluon.jit
def _place(coordinate, LANES: gl.constexpr, N: gl.constexpr):
    """Where in bytes the row of a coordinate begins; beyond the last, the last spare row. As `round_plan.places`."""
    slot = gl.minimum((coordinate & -4) | ((coordinate + (coordinate >> 2)) & 3), N - 1)
    if LANES == 32:
        slot = slot * 128 + (slot & 3) * 32
    elif LANES == 16:
        slot = slot * 64 + (slot & 2) * 16
    else:
        slot = slot * 32
    return slot


@gluon.jit
def rounds_kernel(
    x_ptr, y_ptr, to_ptr, from_ptr, place_ptr, middle_ptr, n_rows, n_units, steps,
    TO_BASIS: gl.constexpr, FROM_BASIS: gl.constexpr, EXACT: gl.constexpr, UNIT: gl.constexpr, N: gl.constexpr,
    SIZE: gl.constexpr, LANES: gl.constexpr, COLUMNS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then Q (FROM_BASIS), on LANES vectors; between the two, where both are asked for, D.

    Args:
        x_ptr: vectors (n_rows, n) with n = UNIT · n_units.
        y_ptr: where the result goes.
        to_ptr: the transposed matrices, (steps, WARPS, SIZE, SIZE).
        from_ptr: the matrices.
        place_ptr: where the rows of each group begin, in bytes, (steps, WARPS, SIZE).
        middle_ptr: the eigenvalues, (n,).
        n_rows: vectors.
        n_units: n / UNIT.
        steps: of Qᵀ in order, of Q in the opposite order.
        TO_BASIS: rotate to the basis.
        FROM_BASIS: rotate from the basis.
        EXACT: products as exact as float32, in three parts.
        UNIT: 4 or 1: so many numbers can be accessed at once.
        N: rows in shared memory: n, rounded up to a multiple of 16, and 4 spare ones.
        SIZE: coordinates per group, 16 or 32.
        LANES: vectors per program, 8, 16 or 32: the words of a row.
        COLUMNS: coordinates that are copied at a time.
        WARPS: warps per program.
    """
    n = n_units * UNIT
    TILE: gl.constexpr = _copied(LANES, WARPS)
    # After the rows: a word for the tile and one for each vector.
    WORDS: gl.constexpr = N * LANES * 4
    memory = gl.allocate_shared_memory(
        gl.float32, [N * LANES // 32 + 2, 32], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([32], gl.float32, gl.BlockedLayout([1], [32], [WARPS], [0])))
    thread_barrier()
    # Padding reads the four spare rows, which therefore have to be finite.
    spare = gl.arange(0, 4 * LANES, gl.BlockedLayout([1], [32], [WARPS], [0]))
    poke(shared_address(((N - 4) * LANES + spare) * 4), spare.to(gl.float32) * 0)
    first = gl.program_id(0).to(gl.int64) * LANES
    lane = gl.arange(0, LANES, gl.SliceLayout(1, TILE))[:, None]
    index = gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    base = shared_address(lane * 0)
    own_word = base + (lane * 4 + (WORDS + 4))
    word = gl.arange(0, 64, gl.BlockedLayout([1], [32], [WARPS], [0]))
    poke(shared_address(WORDS + word * 4), word.to(gl.float32) * 0)
    thread_barrier()
    row = first + lane
    for start in range(0, n, COLUMNS):
        column = start + index
        x = gl.load(x_ptr + row * n + column, mask=(row < n_rows) & (column < n), other=0.0).to(gl.float32)
        _note(own_word, base + WORDS, x)
        poke(base + ((lane * 4) ^ _place(column, LANES, N)), x)
    thread_barrier()
    usual = gl.inline_asm_elementwise(
        usual_code(LANES), "=r,r", [shared_address(WORDS)], dtype=gl.int32, is_pure=False, pack=1
    )
    exponent = lane * 0
    if usual == 0:
        # Tensor cores take numbers in parts, the smallest of which would be lost.
        for start in range(0, n, COLUMNS):
            column = start + index
            x = gl.load(x_ptr + row * n + column, mask=(row < n_rows) & (column < n), other=0.0)
            _measure(own_word, x.to(gl.float32))
        thread_barrier()
        top = peek(own_word).to(gl.int32, bitcast=True)
        exponent = gl.minimum(gl.maximum((top >> 23) - 127, -120), 120)
        power = ((127 - exponent) << 23).to(gl.float32, bitcast=True)
        for start in range(0, n, COLUMNS):
            column = start + index
            x = gl.load(x_ptr + row * n + column, mask=(row < n_rows) & (column < n), other=0.0)
            poke(base + ((lane * 4) ^ _place(column, LANES, N)), x.to(gl.float32) * power)
        thread_barrier()
    back = ((127 + exponent) << 23).to(gl.float32, bitcast=True)
    if TO_BASIS:
        _steps(to_ptr, place_ptr, steps, True, EXACT, SIZE, LANES, WARPS)
    if TO_BASIS and FROM_BASIS:
        for start in range(0, n, COLUMNS):
            column = start + index
            place = base + ((lane * 4) ^ _place(column, LANES, N))
            d = gl.load(middle_ptr + column, mask=column < n, other=0.0)
            poke(place, peek(place) * d)
        thread_barrier()
    if FROM_BASIS:
        _steps(from_ptr, place_ptr, steps, False, EXACT, SIZE, LANES, WARPS)
    for start in range(0, n, COLUMNS):
        column = start + index
        y = peek(base + ((lane * 4) ^ _place(column, LANES, N))) * back
        gl.store(y_ptr + row * n + column, y.to(y_ptr.dtype.element_ty), mask=(row < n_rows) & (column < n))
