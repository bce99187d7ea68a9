"""Gluon kernel for pairs whose touched coordinates fit into shared memory: one warp, one lane per vector.

Shared memory has a row of 32 lanes per touched coordinate. A rotation is two loads, four multiply-adds and two stores
that never leave the multiprocessor. A lane reads and writes only its own column. Gluon does not know that, and would
put a barrier between any two stores to one allocation: on an H200, with MNIST's pairs, that takes 14 copies' time
instead of 9. So rows are addressed by hand, in inline PTX. Triton's interpreter cannot run this kernel;
`kernels.gpu.triton.pairs` computes the same, for larger wirings and gradients too, powers of two for vectors of any
size included.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon import ranges
from swallowtail.kernels.gpu.triton_private import gl, gluon

WARP_LANES = 32  # vectors per program: one for each thread of a warp
ROW_WORDS = (
    33  # words from row to row: odd, so that a vector copied in or out uses all banks of shared memory
)
ROW_BYTES = gl.constexpr(4 * ROW_WORDS)


@gluon.jit
def shared_address(offset):
    """Address of an offset in bytes from the start of the program's shared memory, which is a single allocation."""
    return gl.inline_asm_elementwise(
        "mov.u32 $0, global_smem; add.u32 $0, $0, $1;", "=&r,r", [offset],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def peek(address):
    """Load from shared memory without a barrier."""
    return gl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];", "=f,r", [address], dtype=gl.float32, is_pure=False, pack=1
    )  # fmt: skip


@gluon.jit
def poke(address, value):
    """Store to shared memory without a barrier."""
    gl.inline_asm_elementwise(
        "st.shared.f32 [$1], $2; mov.b32 $0, 0;", "=r,r,f", [address, value], dtype=gl.int32, is_pure=False,
        pack=1
    )  # fmt: skip


@gluon.jit
def _chunk(pair_ptr, u_ptr, v_ptr, chunk, SLOTS: gl.constexpr):
    """The SLOTS pairs of a chunk (first row + 2^16 second row) and their cosines u and sines v."""
    # Every lane has all SLOTS entries, which it reads four at a time.
    layout: gl.constexpr = gl.SliceLayout(1, gl.BlockedLayout([SLOTS, 1], [1, 32], [1, 1], [0, 1]))
    place = chunk * SLOTS + gl.arange(0, SLOTS, layout)
    return gl.load(pair_ptr + place), gl.load(u_ptr + place), gl.load(v_ptr + place)


@gluon.jit
def _turn(pair_ptr, u_ptr, v_ptr, n_chunks, TRANSPOSE: gl.constexpr, SLOTS: gl.constexpr):
    """All rotations of Qᵀ (TRANSPOSE: chunks in the order of the schedule) or of Q (in the opposite order)."""
    layout: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([SLOTS, 1], [1, 32], [1, 1], [0, 1]))
    column = shared_address(gl.arange(0, 32, layout) * 4)[None, :]
    pair, u, v = _chunk(pair_ptr, u_ptr, v_ptr, 0 if TRANSPOSE else n_chunks - 1, SLOTS)
    for k in range(n_chunks):
        # Load the next chunk's table entries before this chunk's data: their latency is then hidden.
        following = min(k + 1, n_chunks - 1) if TRANSPOSE else max(n_chunks - 2 - k, 0)
        next_pair, next_u, next_v = _chunk(pair_ptr, u_ptr, v_ptr, following, SLOTS)
        first = column + (pair & 0xFFFF)[:, None] * ROW_BYTES
        second = column + (pair >> 16)[:, None] * ROW_BYTES
        a = peek(first)
        b = peek(second)
        c = u[:, None]
        s = v[:, None] if TRANSPOSE else -v[:, None]
        poke(first, c * a + s * b)
        poke(second, c * b - s * a)
        pair = next_pair
        u = next_u
        v = next_v


@gluon.jit
def _unusual(bits):
    """Whether some of these largest numbers are so far from 1 that arithmetic might leave the range."""
    return gl.max(((bits > 0) & ((bits < 0x2B800000) | (bits >= 0x53800000))).to(gl.int32), axis=0)  # 2^∓40


@gluon.jit
def _diagonal_exponent(middle_ptr, n, LAYOUT: gl.constexpr):
    """The exponent of the largest number of the diagonal."""
    index = gl.arange(0, 32, LAYOUT)
    bits = index * 0
    for start in range(0, n, 32):
        d = gl.load(middle_ptr + start + index, mask=start + index < n, other=0.0)
        bits = gl.maximum(bits, ranges.bits_of(d))
    return ranges.exponent(gl.max(bits, axis=0))


@gluon.jit
def shared_pairs_kernel(
    x_ptr, y_ptr, pair_ptr, u_ptr, v_ptr, row_of_ptr, middle_ptr,
    n, n_touched, n_chunks, n_rows, lane_blocks,
    TO_BASIS: gl.constexpr, FROM_BASIS: gl.constexpr, MIDDLE: gl.constexpr, SLOTS: gl.constexpr,
    ALLOCATED: gl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then D (MIDDLE), then Q (FROM_BASIS), each optional, on 32 vectors.

    ALLOCATED is the shared memory in units of 32 words. Coordinates that no rotation touches share a spare row when
    they are copied in. They are read again when results are copied out, so that whole lines of memory are written.

    Vectors whose largest number is far from 1 are copied in once more, times powers of two.
    """
    tile: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, 1], [1, 0])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    memory = gl.allocate_shared_memory(gl.float32, [ALLOCATED, 32], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    memory.index(0).store(
        gl.zeros([32], gl.float32, line)
    )  # without a use the compiler would drop the allocation
    gl.thread_barrier()
    batch = (gl.program_id(0) // lane_blocks).to(gl.int64)
    x_ptr += batch * n_rows * n
    y_ptr += batch * n_rows * n
    u_ptr += batch * n_chunks * SLOTS
    v_ptr += batch * n_chunks * SLOTS
    middle_ptr += batch * n
    first = (gl.program_id(0) % lane_blocks).to(gl.int64) * 32
    base = shared_address(gl.full([32], 0, gl.int32, gl.SliceLayout(0, tile)))
    index = gl.arange(0, 32, gl.SliceLayout(0, tile))
    local = gl.arange(0, 16, gl.SliceLayout(1, tile))
    bits0 = gl.full([16, 32], 0, gl.int32, tile)
    bits1 = bits0
    for start in range(0, n, 32):
        cols = start + index
        row = gl.load(row_of_ptr + cols, mask=cols < n, other=-1)
        column = base + gl.where(row < 0, n_touched, row) * ROW_BYTES
        for half in gl.static_range(2):
            lane = first + half * 16 + local
            mask = (lane < n_rows)[:, None] & (cols < n)[None, :]
            x = gl.load(x_ptr + lane[:, None] * n + cols[None, :], mask=mask, other=0.0)
            x = x.to(gl.float32)
            poke(column[None, :] + (half * 16 + local)[:, None] * 4, x)
            if half == 0:
                bits0 = gl.maximum(bits0, ranges.bits_of(x))
            else:
                bits1 = gl.maximum(bits1, ranges.bits_of(x))
    largest0 = gl.max(bits0, axis=1)
    largest1 = gl.max(bits1, axis=1)
    size0 = local * 0
    size1 = local * 0
    if (_unusual(largest0) | _unusual(largest1)) != 0:
        size0 = ranges.exponent(largest0)
        size1 = ranges.exponent(largest1)
        for start in range(0, n, 32):
            cols = start + index
            row = gl.load(row_of_ptr + cols, mask=cols < n, other=-1)
            column = base + gl.where(row < 0, n_touched, row) * ROW_BYTES
            for half in gl.static_range(2):
                lane = first + half * 16 + local
                mask = (lane < n_rows)[:, None] & (cols < n)[None, :]
                x = gl.load(x_ptr + lane[:, None] * n + cols[None, :], mask=mask, other=0.0).to(gl.float32)
                factor = ranges.power(-(size0 if half == 0 else size1))
                poke(column[None, :] + (half * 16 + local)[:, None] * 4, x * factor[:, None])
    gl.thread_barrier()
    column = shared_address(gl.arange(0, 32, line) * 4)
    if TO_BASIS:
        _turn(pair_ptr, u_ptr, v_ptr, n_chunks, True, SLOTS)
    if MIDDLE:
        size_d = _diagonal_exponent(middle_ptr, n, line)
        factor_d = ranges.power(-size_d)
        for c in range(n):
            row = gl.load(row_of_ptr + c)
            place = column + (n_touched if row < 0 else row) * ROW_BYTES
            poke(place, peek(place) * (gl.load(middle_ptr + c) * factor_d))
        size0 = size0 + size_d
        size1 = size1 + size_d
    if FROM_BASIS:
        _turn(pair_ptr, u_ptr, v_ptr, n_chunks, False, SLOTS)
    gl.thread_barrier()
    for start in range(0, n, 32):
        cols = start + index
        row = gl.load(row_of_ptr + cols, mask=cols < n, other=-1)
        column_out = base + gl.where(row < 0, n_touched, row) * ROW_BYTES
        if MIDDLE:
            d = gl.load(middle_ptr + cols, mask=cols < n, other=0.0)
        for half in gl.static_range(2):
            lane = first + half * 16 + local
            mask = (lane < n_rows)[:, None] & (cols < n)[None, :]
            still = gl.load(
                x_ptr + lane[:, None] * n + cols[None, :], mask=mask & (row < 0)[None, :], other=0.0
            ).to(gl.float32)  # fmt: skip
            if MIDDLE:
                still = still * d[None, :]
            turned = peek(column_out[None, :] + (half * 16 + local)[:, None] * 4)
            size = size0 if half == 0 else size1
            if MIDDLE:
                part = size // 2
                turned = turned * ranges.power(part)[:, None] * ranges.power(size - part)[:, None]
            else:
                turned = turned * ranges.power(size)[:, None]
            value = gl.where((row < 0)[None, :], still, turned)
            gl.store(y_ptr + lane[:, None] * n + cols[None, :], value.to(y_ptr.dtype.element_ty), mask=mask)
