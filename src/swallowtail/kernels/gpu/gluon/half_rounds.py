"""Gluon kernel for rounds of groups of 16 coordinates in half precision, for GPUs of compute capability 9.0 on.

Shared memory has a row of LANES fp16 numbers per coordinate, one for each vector of the tile. In a step every warp
multiplies a 16 × 16 matrix by the rows of its group. Rows are gathered and put back by address, eight numbers at a
time: ``ldmatrix`` and ``stmatrix`` read and write them in the layout of tensor cores. The same instructions transpose
vectors on their way in and out. Gluon knows nothing of all this, so it is inline PTX (`half_code`), and the kernel must
not exchange anything else through shared memory.

Between steps numbers are rounded to fp16, also where vectors are bf16: that has three more bits. Its range is small, so
a vector is taken times a power of two where its largest number is not near 1. Whether it is shows while vectors are
read. If one of a tile is not, the tile is read again.

Banks of shared memory: eight rows that are accessed together have different banks if the last three bits of their
numbers differ. `half_plan.slots` numbers rows so that this holds for butterflies, and for vectors on their way in and
out; `half_plan` orders the coordinates of other groups accordingly.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.half_code import (
    bits,
    enter_code,
    leave_code,
    measure_code,
    multiply_code,
    several,
    step_code,
    step_operands,
    usual,
    usual_code,
)
from swallowtail.kernels.gpu.gluon.pairs import peek, shared_address
from swallowtail.kernels.gpu.triton_private import gl, gluon


@gluon.constexpr_function
def _tile(LANES, WARPS):
    """The layout of a piece of the vectors, (LANES, columns): a warp has 64 bytes of each of eight vectors."""
    along = min(LANES // 8, WARPS)
    return gl.BlockedLayout([1, 8], [8, 4], [along, WARPS // along], [1, 0])


@gluon.constexpr_function
def _threads(PARTS, WARPS):
    """The layout of a step's matrices, (threads, 4 · PARTS)."""
    return gl.BlockedLayout([1, 4 * PARTS], [32, 1], [WARPS, 1], [1, 0])


@gluon.jit
def _tables(matrix_ptr, place_ptr, flag_ptr, step, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """A step's matrices, where the rows of its groups lie, and whether a barrier follows."""
    LAYOUT: gl.constexpr = _threads(PARTS, WARPS)
    thread = gl.arange(0, 32 * WARPS, gl.SliceLayout(1, LAYOUT))
    part = gl.arange(0, 4 * PARTS, gl.SliceLayout(0, LAYOUT))[None, :]
    matrices = gl.load(matrix_ptr + (step * (32 * WARPS) + thread[:, None]) * (4 * PARTS) + part)
    place = gl.load(place_ptr + step * (16 * WARPS) + thread // 32 * 16 + thread % 16)
    return matrices, place ^ (thread % 32 // 16 * 16), gl.load(flag_ptr + step)


@gluon.jit
def _steps(
    matrix_ptr, place_ptr, flag_ptr, steps, PARTS: gl.constexpr, LANES: gl.constexpr, AHEAD: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """All steps of a sweep. Tables are loaded AHEAD steps before they are used: they come from the L2 cache."""
    LAYOUT: gl.constexpr = _threads(PARTS, WARPS)
    base = shared_address(gl.arange(0, 32 * WARPS, gl.SliceLayout(1, LAYOUT)) * 0)
    loaded = ()
    for i in gl.static_range(AHEAD):
        early = gl.minimum(i, steps - 1)
        loaded = loaded + (_tables(matrix_ptr, place_ptr, flag_ptr, early, PARTS, WARPS),)  # noqa: RUF005
    for first in range(0, steps, AHEAD):
        following = ()
        for j in gl.static_range(AHEAD):
            matrices, place, flag = loaded[j]
            k = first + j
            if k < steps:
                gl.inline_asm_elementwise(
                    step_code(LANES, PARTS), step_operands(PARTS), [(base + place)[:, None], matrices],
                    dtype=gl.int32, is_pure=False, pack=4 * PARTS,
                )  # fmt: skip
                if flag != 0:
                    gl.thread_barrier()
            at = gl.minimum(k + AHEAD, steps - 1)
            following = following + (_tables(matrix_ptr, place_ptr, flag_ptr, at, PARTS, WARPS),)  # noqa: RUF005
        loaded = following


@gluon.jit
def _row(coordinate, N: gl.constexpr):
    """The row of a coordinate; beyond the last, a spare row. As `half_plan.slots`."""
    c = coordinate
    low = (c ^ (c >> 8) ^ ((c >> 2) & 2) ^ ((c >> 2) & 4) ^ ((c >> 5) & 3)) & 7
    return gl.minimum((c & -8) | low, N - 1)


@gluon.jit
def _place(row, LANES: gl.constexpr):
    """Where a row begins, in bytes, with its first piece of eight numbers. As `half_plan.places`."""
    if LANES == 64:
        place = row * 128 + (row & 7) * 16
    elif LANES == 32:
        place = row * 64 + ((row >> 1) & 3) * 16
    else:
        place = row * 32 + ((row >> 2) & 1) * 16
    return place


@gluon.jit
def _addresses(start, LANES: gl.constexpr, COLUMNS: gl.constexpr, N: gl.constexpr, WARPS: gl.constexpr):
    """Addresses for moving COLUMNS coordinates of all vectors, from ``start`` on, between threads and rows.

    Lane 4 g + t has coordinates 8 t to 8 t + 7 of vector g, two in each of four registers. Register r of all lanes is a
    matrix of 8 vectors and the coordinates 8 t + 2 r and 8 t + 2 r + 1. Lane l gives the address of the row of
    coordinate l % 8 of matrix l // 8.
    """
    TILE: gl.constexpr = _tile(LANES, WARPS)
    vector = gl.arange(0, LANES, gl.SliceLayout(1, TILE))[:, None]
    column = start + gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    g, t = vector & 7, (column >> 3) & 3
    coordinate = (column & -32) + (g & 1) * 16 + (t >> 1) * 8 + (g >> 1) * 2 + (t & 1)
    return shared_address(_place(_row(coordinate, N), LANES) ^ ((vector >> 3) * 16))


@gluon.jit
def half_rounds_kernel(
    x_ptr, y_ptr, first_ptr, first_place_ptr, first_flag_ptr, second_ptr, second_place_ptr, second_flag_ptr,
    middle_ptr, gain_ptr, n_rows, n_units, tiles, workers, first_steps, second_steps,
    SECOND: gl.constexpr, MIDDLE: gl.constexpr, GAIN: gl.constexpr, KIND: gl.constexpr, PARTS: gl.constexpr,
    N: gl.constexpr, LANES: gl.constexpr, COLUMNS: gl.constexpr, AHEAD: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """A sweep of steps on vectors x; then, if asked for, a diagonal (MIDDLE) and another sweep (SECOND).

    Args:
        x_ptr: vectors (n_rows, n) with n = 8 · n_units.
        y_ptr: where the result goes.
        first_ptr: the matrices of the first sweep in the order of tensor cores, (steps, WARPS, 32 lanes, 4 · PARTS).
        first_place_ptr: where the rows of each group begin, in bytes, (steps, WARPS, 16).
        first_flag_ptr: whether steps are followed by a barrier, (steps,).
        second_ptr, second_place_ptr, second_flag_ptr: likewise.
        middle_ptr: the diagonal, (n,), float32.
        gain_ptr: the logarithm of a power of two that results lack, one int32.
        n_rows: vectors.
        n_units: n / 8.
        tiles: of LANES vectors.
        workers: programs.
        first_steps, second_steps: of each sweep.
        SECOND: there are two sweeps.
        MIDDLE: there is a diagonal.
        GAIN: there is such a power.
        KIND: the dtype of vectors, "bf16" or "fp16".
        PARTS: 2: matrices in two parts, as exact as float32.
        N: rows of shared memory: n, rounded up to a multiple of 32, and 8 spare ones.
        LANES: vectors per program, 16, 32 or 64.
        COLUMNS: coordinates that are read at a time.
        AHEAD: how many steps before their use tables are loaded.
        WARPS: warps per program.
    """
    n = n_units * 8
    TILE: gl.constexpr = _tile(LANES, WARPS)
    SIZE: gl.constexpr = N * LANES * 2  # bytes of all rows; the words of `_enter_code` come after them
    WORDS: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    memory = gl.allocate_shared_memory(
        gl.float32, [SIZE // 128 + 8, 32], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([32], gl.float32, WORDS))
    gl.thread_barrier()
    lane = gl.arange(0, LANES, gl.SliceLayout(1, TILE))[:, None]
    index = gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    word = gl.arange(0, 32 * WARPS, WORDS)
    # Padding reads the spare rows, which therefore have to be finite.
    for start in range(0, 4 * LANES, 32 * WARPS):
        _set(shared_address((SIZE - 16 * LANES) + gl.minimum(start + word, 4 * LANES - 1) * 4), word * 0)
    first_word = shared_address(lane * 0 + SIZE)
    own_word = first_word + (lane * 4 + 4)
    for tile in range(gl.program_id(0), tiles, workers):
        row = gl.minimum(tile * LANES + lane, n_rows - 1).to(gl.int64) * n
        _set(shared_address(SIZE + gl.minimum(word, LANES) * 4), word * 0)
        gl.thread_barrier()
        for start in range(0, n, COLUMNS):
            column = start + index
            x = gl.load(x_ptr + row + column, mask=column < n, other=0.0)
            address = _addresses(start, LANES, COLUMNS, N, WARPS)
            gl.inline_asm_elementwise(
                enter_code(KIND, False), several(28), [address, own_word, first_word, x],
                dtype=gl.int16, is_pure=False, pack=8,
            )  # fmt: skip
        gl.thread_barrier()
        usual = gl.inline_asm_elementwise(
            usual_code(LANES), "=r,r", [shared_address(SIZE)], dtype=gl.int32, is_pure=False, pack=1
        )
        exponent = lane * 0
        if usual == 0:
            exponent = _read_scaled(x_ptr, row, own_word, index, n, KIND, N, LANES, COLUMNS, WARPS)
            gl.thread_barrier()
        _steps(first_ptr, first_place_ptr, first_flag_ptr, first_steps, PARTS, LANES, AHEAD, WARPS)
        if MIDDLE:
            for start in range(0, n, COLUMNS):
                column = start + index
                d = gl.load(middle_ptr + column, mask=column < n, other=0.0)
                address = _addresses(start, LANES, COLUMNS, N, WARPS)
                gl.inline_asm_elementwise(
                    multiply_code(), "=r,=r,=r,=r,r,r,r,r,r,r,r,r,f,f,f,f,f,f,f,f", [address, d],
                    dtype=gl.int16, is_pure=False, pack=8,
                )  # fmt: skip
            gl.thread_barrier()
        if SECOND:
            _steps(second_ptr, second_place_ptr, second_flag_ptr, second_steps, PARTS, LANES, AHEAD, WARPS)
        if GAIN:
            exponent += gl.load(gain_ptr)
        for start in range(0, n, COLUMNS):
            column = start + index
            address = _addresses(start, LANES, COLUMNS, N, WARPS)
            y = gl.inline_asm_elementwise(
                leave_code(KIND), several(16), [address, exponent],
                dtype=y_ptr.dtype.element_ty, is_pure=False, pack=8,
            )  # fmt: skip
            gl.store(y_ptr + row + column, y, mask=column < n)
        gl.thread_barrier()


@gluon.jit
def _read_scaled(
    x_ptr, row, own_word, index, n, KIND: gl.constexpr, N: gl.constexpr, LANES: gl.constexpr, COLUMNS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Read a tile once more, each vector times a power of two; the exponents that undo it, (LANES, 1)."""
    FRACTION: gl.constexpr = bits(KIND, 0)
    BIAS: gl.constexpr = bits(KIND, 1)
    POWER: gl.constexpr = usual()
    for start in range(0, n, COLUMNS):
        column = start + index
        x = gl.load(x_ptr + row + column, mask=column < n, other=0.0)
        gl.inline_asm_elementwise(
            measure_code(KIND), several(12), [own_word, x], dtype=gl.int16, is_pure=False, pack=8
        )
    gl.thread_barrier()
    top = peek(own_word).to(gl.int32, bitcast=True)
    # A word that was 1 is still 1 if all is smaller: such a vector is nearly nothing, whatever it is multiplied with.
    exponent = gl.minimum(gl.maximum((top >> FRACTION) - BIAS, -118), 127) - POWER
    for start in range(0, n, COLUMNS):
        column = start + index
        x = gl.load(x_ptr + row + column, mask=column < n, other=0.0)
        address = _addresses(start, LANES, COLUMNS, N, WARPS)
        gl.inline_asm_elementwise(
            enter_code(KIND, True), several(28), [address, own_word, -exponent, x],
            dtype=gl.int16, is_pure=False, pack=8,
        )  # fmt: skip
    return exponent


@gluon.jit
def _set(address, value):
    """Store a word to shared memory."""
    gl.inline_asm_elementwise(
        "st.shared.b32 [$1], $2; mov.b32 $0, 0;", "=r,r,r", [address, value], dtype=gl.int32, is_pure=False, pack=1
    )  # fmt: skip
