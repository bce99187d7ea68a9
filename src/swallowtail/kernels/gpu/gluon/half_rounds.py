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
numbers differ. `half_plan` numbers rows so that this holds for vectors on their way in and out, for butterflies, and
for other groups as far as possible.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.half_code import (
    bits,
    chunk,
    enter_code,
    leave_code,
    measure_code,
    several,
    step_code,
    step_operands,
    turned,
    usual_code,
    usual_power,
)
from swallowtail.kernels.gpu.gluon.pairs import peek, shared_address
from swallowtail.kernels.gpu.triton_private import gl, gluon, thread_barrier


@gluon.constexpr_function
def _tile(CHUNK, WARPS):
    """The layout of a piece of the vectors, (CHUNK, units, 8): a warp has 64 bytes of each of eight vectors."""
    along = min(CHUNK // 8, WARPS)
    return gl.BlockedLayout([1, 1, 8], [8, 4, 1], [along, WARPS // along, 1], [2, 1, 0])


@gluon.constexpr_function
def _threads(PARTS, WARPS):
    """The layout of a step's matrices, (threads, 4 · PARTS)."""
    return gl.BlockedLayout([1, 4 * PARTS], [32, 1], [WARPS, 1], [1, 0])


@gluon.jit
def _tables(
    matrix_ptr, place_ptr, flag_ptr, step, PARTS: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr
):
    """A step's matrices, where the rows of its groups lie, and whether a barrier follows."""
    LAYOUT: gl.constexpr = _threads(PARTS, WARPS)
    thread = gl.arange(0, 32 * WARPS, gl.SliceLayout(1, LAYOUT))
    part = gl.arange(0, 4 * PARTS, gl.SliceLayout(0, LAYOUT))[None, :]
    matrices = gl.load(matrix_ptr + (step * (32 * WARPS) + thread[:, None]) * (4 * PARTS) + part)
    place = gl.load(place_ptr + step * (16 * WARPS) + thread // 32 * 16 + thread % 16)
    return matrices, _piece_of(place, thread % 32 // 16, LANES), gl.load(flag_ptr + step)


@gluon.jit
def _piece_of(place, piece, LANES: gl.constexpr):
    """Where a piece of eight numbers lies, from where its row does."""
    TURNED: gl.constexpr = turned(LANES)
    return (place ^ (piece & TURNED) * 16) + (piece - (piece & TURNED)) * 16


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
        loaded = loaded + (_tables(matrix_ptr, place_ptr, flag_ptr, early, PARTS, LANES, WARPS),)  # noqa: RUF005
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
                    thread_barrier()
            at = gl.minimum(k + AHEAD, steps - 1)
            following = following + (_tables(matrix_ptr, place_ptr, flag_ptr, at, PARTS, LANES, WARPS),)  # noqa: RUF005
        loaded = following


@gluon.jit
def _row(vector, n_rows, columns, block, n):
    """Where a block of a vector begins; those past the end are the last one."""
    return (gl.minimum(vector, n_rows - 1).to(gl.int64) * columns + block) * n


@gluon.jit
def _piece(start, n, CHUNK: gl.constexpr, UNITS: gl.constexpr, WARPS: gl.constexpr):
    """Coordinates of UNITS times eight neighbours of a vector, (1, UNITS, 8), and which of them exist."""
    TILE: gl.constexpr = _tile(CHUNK, WARPS)
    unit = gl.arange(0, UNITS, gl.SliceLayout(0, gl.SliceLayout(2, TILE)))[None, :, None]
    number = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, TILE)))[None, None, :]
    column = start + unit * 8 + number
    return column, column < n


@gluon.jit
def _addresses(entries, start, first, LANES: gl.constexpr, UNITS: gl.constexpr, WARPS: gl.constexpr):
    """Addresses for moving a piece of some vectors, from ``first`` on, between threads and rows, (CHUNK, UNITS, 1).

    Lane 4 g + t has coordinates 8 t to 8 t + 7 of vector g, two in each of four registers. Register r of all lanes is a
    matrix of 8 vectors and the coordinates 8 t + 2 r and 8 t + 2 r + 1. Lane l gives the address of the row of
    coordinate l % 8 of matrix l // 8: `half_plan.entries` has them for each 32 coordinates, and they are in shared
    memory from ``entries`` on.
    """
    CHUNK: gl.constexpr = chunk(LANES)
    LAYOUT: gl.constexpr = gl.SliceLayout(2, _tile(CHUNK, WARPS))
    vector = first + gl.arange(0, CHUNK, gl.SliceLayout(1, LAYOUT))[:, None]
    unit = start // 8 + gl.arange(0, UNITS, gl.SliceLayout(0, LAYOUT))[None, :]
    place = peek(entries + ((unit >> 2) * 128 + (vector & 7) * 16 + (unit & 3) * 4))
    return shared_address(_piece_of(place.to(gl.int32, bitcast=True), vector >> 3, LANES))[:, :, None]


@gluon.jit
def half_rounds_kernel(
    x_ptr, y_ptr, matrix_ptr, place_ptr, flag_ptr, entry_ptr, gain_ptr, n_rows, n_units, tiles, workers, steps,
    columns,
    GAIN: gl.constexpr, KIND: gl.constexpr, PARTS: gl.constexpr, N: gl.constexpr, LANES: gl.constexpr,
    UNITS: gl.constexpr, AHEAD: gl.constexpr, ENTRIES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Steps on vectors x. These may be column blocks of longer ones, which have the same steps but other matrices.

    Args:
        x_ptr: vectors (n_rows, columns, n) with n = 8 · n_units.
        y_ptr: where the result goes.
        matrix_ptr: the matrices of each step in the order of tensor cores,
            (columns, steps, WARPS, 32 lanes, 4 · PARTS).
        place_ptr: where the rows of each group begin, in bytes, (steps, WARPS, 16).
        flag_ptr: whether steps are followed by a barrier, (steps,).
        entry_ptr: where rows begin for vectors on their way in and out (`half_plan.entries`).
        gain_ptr: the logarithms of powers of two that results lack, int32, (columns,).
        n_rows: vectors.
        n_units: n / 8.
        tiles: of LANES vectors.
        workers: programs for each column block.
        steps: how many there are.
        columns: blocks of a vector.
        GAIN: there is such a power.
        KIND: the dtype of vectors, "bf16" or "fp16".
        PARTS: 2: matrices in two parts, as exact as float32.
        N: rows of shared memory: n, rounded up to a multiple of 32, and 8 spare ones.
        LANES: vectors per program, 16, 24, 32, 48 or 64.
        UNITS: eights of coordinates that are read at a time.
        AHEAD: how many steps before their use tables are loaded.
        ENTRIES: how many pieces of 32 entries there are.
        WARPS: warps per program.
    """
    n = n_units * 8
    block = gl.program_id(0) % columns
    matrix_ptr += block.to(gl.int64) * (steps * (128 * WARPS * PARTS))
    CHUNK: gl.constexpr = chunk(LANES)
    TILE: gl.constexpr = _tile(CHUNK, WARPS)
    # Bytes of all rows. The words of `enter_code` come after them, then the entries.
    SIZE: gl.constexpr = N * LANES * 2
    WORD_BYTES: gl.constexpr = 512
    WORDS: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    memory = gl.allocate_shared_memory(
        gl.float32, [(SIZE + WORD_BYTES) // 128 + ENTRIES, 32], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([32], gl.float32, WORDS))
    thread_barrier()
    lane = gl.arange(0, CHUNK, gl.SliceLayout(1, gl.SliceLayout(2, TILE)))[:, None, None]
    word = gl.arange(0, 32 * WARPS, WORDS)
    # Padding reads the spare rows, which therefore have to be finite.
    for first in range(0, 4 * LANES, 32 * WARPS):
        _set(shared_address((SIZE - 16 * LANES) + gl.minimum(first + word, 4 * LANES - 1) * 4), word * 0)
    for first in range(0, 32 * ENTRIES, 32 * WARPS):
        number = gl.minimum(first + word, 32 * ENTRIES - 1)
        _set(shared_address(SIZE + WORD_BYTES + number * 4), gl.load(entry_ptr + number))
    entries = shared_address(SIZE + WORD_BYTES)
    words = shared_address(lane * 0 + SIZE)
    for tile in range(gl.program_id(0) // columns, tiles, workers):
        _set(shared_address(SIZE + gl.minimum(word, LANES) * 4), word * 0)
        thread_barrier()
        for part in gl.static_range(0, LANES, CHUNK):
            row = _row(tile * LANES + part + lane, n_rows, columns, block, n)
            for start in range(0, n, 8 * UNITS):
                column, some = _piece(start, n, CHUNK, UNITS, WARPS)
                x = gl.load(x_ptr + row + column, mask=some, other=0.0)
                gl.inline_asm_elementwise(
                    enter_code(KIND, False), several(28),
                    [_addresses(entries, start, part, LANES, UNITS, WARPS), words + (part + lane) * 4 + 4, words, x],
                    dtype=gl.int16, is_pure=False, pack=8,
                )  # fmt: skip
        thread_barrier()
        usual = gl.inline_asm_elementwise(
            usual_code(LANES), "=r,r", [shared_address(SIZE)], dtype=gl.int32, is_pure=False, pack=1
        )
        if usual == 0:
            for part in gl.static_range(0, LANES, CHUNK):
                row = _row(tile * LANES + part + lane, n_rows, columns, block, n)
                _measure(x_ptr, row, words + (part + lane) * 4 + 4, n, KIND, CHUNK, UNITS, WARPS)
            thread_barrier()
            for part in gl.static_range(0, LANES, CHUNK):
                row = _row(tile * LANES + part + lane, n_rows, columns, block, n)
                own_word = words + (part + lane) * 4 + 4
                _read_scaled(x_ptr, row, entries, own_word, part, n, KIND, LANES, UNITS, WARPS)
            thread_barrier()
        _steps(matrix_ptr, place_ptr, flag_ptr, steps, PARTS, LANES, AHEAD, WARPS)
        for part in gl.static_range(0, LANES, CHUNK):
            row = _row(tile * LANES + part + lane, n_rows, columns, block, n)
            exponent = lane * 0
            if GAIN:
                exponent += gl.load(gain_ptr + block)
            if usual == 0:
                exponent += _exponent(words + (part + lane) * 4 + 4, KIND)
                _leave(y_ptr, row, entries, exponent, part, n, 2, KIND, LANES, UNITS, WARPS)
            else:
                _leave(y_ptr, row, entries, exponent, part, n, 1 if GAIN else 0, KIND, LANES, UNITS, WARPS)
        thread_barrier()


@gluon.jit
def _leave(
    y_ptr, row, entries, exponent, first, n, FACTORS: gl.constexpr, KIND: gl.constexpr, LANES: gl.constexpr,
    UNITS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Write some vectors of a tile, each times 2^exponent in so many FACTORS."""
    CHUNK: gl.constexpr = chunk(LANES)
    for start in range(0, n, 8 * UNITS):
        column, some = _piece(start, n, CHUNK, UNITS, WARPS)
        y = gl.inline_asm_elementwise(
            leave_code(KIND, FACTORS), several(24), [
                _addresses(entries, start, first, LANES, UNITS, WARPS), exponent, column * 0,
            ], dtype=y_ptr.dtype.element_ty, is_pure=False, pack=8,
        )  # fmt: skip
        gl.store(y_ptr + row + column, y, mask=some)


@gluon.jit
def _measure(
    x_ptr, row, own_word, n, KIND: gl.constexpr, CHUNK: gl.constexpr, UNITS: gl.constexpr, WARPS: gl.constexpr
):
    """The words of some vectors become their largest numbers, without signs, as integers."""
    for start in range(0, n, 8 * UNITS):
        column, some = _piece(start, n, CHUNK, UNITS, WARPS)
        x = gl.load(x_ptr + row + column, mask=some, other=0.0)
        gl.inline_asm_elementwise(
            measure_code(KIND), several(12), [own_word, x], dtype=gl.int16, is_pure=False, pack=8
        )


@gluon.jit
def _exponent(own_word, KIND: gl.constexpr):
    """The logarithms of the powers of two that bring vectors to 2^`half_code.USUAL`, without their signs."""
    FRACTION: gl.constexpr = bits(KIND, 0)
    BIAS: gl.constexpr = bits(KIND, 1)
    POWER: gl.constexpr = usual_power()
    top = peek(own_word).to(gl.int32, bitcast=True)
    # A word that was 1 is still 1 if all is smaller: such a vector is nearly nothing, whatever it is multiplied with.
    return gl.minimum(gl.maximum((top >> FRACTION) - BIAS, -118), 127) - POWER


@gluon.jit
def _read_scaled(
    x_ptr, row, entries, own_word, first, n, KIND: gl.constexpr, LANES: gl.constexpr, UNITS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Read some vectors of a tile once more, each times a power of two."""
    CHUNK: gl.constexpr = chunk(LANES)
    exponent = _exponent(own_word, KIND)
    for start in range(0, n, 8 * UNITS):
        column, some = _piece(start, n, CHUNK, UNITS, WARPS)
        x = gl.load(x_ptr + row + column, mask=some, other=0.0)
        gl.inline_asm_elementwise(
            enter_code(KIND, True), several(28),
            [_addresses(entries, start, first, LANES, UNITS, WARPS), own_word, -exponent, x],
            dtype=gl.int16, is_pure=False, pack=8,
        )  # fmt: skip


@gluon.jit
def _set(address, value):
    """Store a word to shared memory."""
    gl.inline_asm_elementwise(
        "st.shared.b32 [$1], $2; mov.b32 $0, 0;", "=r,r,r", [address, value], dtype=gl.int32, is_pure=False, pack=1
    )  # fmt: skip
