"""Gluon kernel for pairs whose touched coordinates fit into shared memory: one warp, one lane per vector.

Shared memory has a row of 32 lanes per touched coordinate. A rotation is two loads, four multiply-adds and two stores
that never leave the multiprocessor. A lane reads and writes only its own column. Gluon does not know that, and would
put a barrier between any two stores to one allocation: on an H200, with MNIST's pairs, that takes 14 copies' time
instead of 9. So rows are addressed by hand, in inline PTX. Triton's interpreter cannot run this kernel;
`kernels.gpu.triton.pairs` computes the same, for larger wirings and gradients too.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.triton_private import gl, gluon, thread_barrier

WARP_LANES = 32  # vectors per program: one for each thread of a warp
# Words from row to row: odd, so that a vector copied in or out uses all banks of shared memory.
ROW_WORDS = 33
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
def shared_pairs_kernel(
    x_ptr, y_ptr, pair_ptr, u_ptr, v_ptr, row_of_ptr, middle_ptr,
    n, n_touched, n_chunks, n_rows, lane_blocks,
    TO_BASIS: gl.constexpr, FROM_BASIS: gl.constexpr, MIDDLE: gl.constexpr, SLOTS: gl.constexpr,
    ALLOCATED: gl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then D (MIDDLE), then Q (FROM_BASIS), each optional, on 32 vectors.

    ALLOCATED is the shared memory in units of 32 words. Coordinates that no rotation touches share a spare row when
    they are copied in. They are read again when results are copied out, so that whole lines of memory are written.
    """
    tile: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, 1], [1, 0])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    memory = gl.allocate_shared_memory(gl.float32, [ALLOCATED, 32], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([32], gl.float32, line))
    thread_barrier()
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
    for start in range(0, n, 32):
        cols = start + index
        row = gl.load(row_of_ptr + cols, mask=cols < n, other=-1)
        column = base + gl.where(row < 0, n_touched, row) * ROW_BYTES
        for half in gl.static_range(2):
            lane = first + half * 16 + local
            mask = (lane < n_rows)[:, None] & (cols < n)[None, :]
            x = gl.load(x_ptr + lane[:, None] * n + cols[None, :], mask=mask, other=0.0)
            poke(column[None, :] + (half * 16 + local)[:, None] * 4, x.to(gl.float32))
    thread_barrier()
    column = shared_address(gl.arange(0, 32, line) * 4)
    if TO_BASIS:
        _turn(pair_ptr, u_ptr, v_ptr, n_chunks, True, SLOTS)
    if MIDDLE:
        for c in range(n):
            row = gl.load(row_of_ptr + c)
            place = column + (n_touched if row < 0 else row) * ROW_BYTES
            poke(place, peek(place) * gl.load(middle_ptr + c))
    if FROM_BASIS:
        _turn(pair_ptr, u_ptr, v_ptr, n_chunks, False, SLOTS)
    thread_barrier()
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
            value = gl.where((row < 0)[None, :], still, turned)
            gl.store(y_ptr + lane[:, None] * n + cols[None, :], value.to(y_ptr.dtype.element_ty), mask=mask)
