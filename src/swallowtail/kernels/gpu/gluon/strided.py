"""Gluon kernel for the stages of large strides in half precision, beyond the column blocks of `gluon.blocks`.

Programs are persistent. Each has some neighbouring columns with all their partners, keeps the cosines and sines of its
rotations in registers, and walks through the vectors. Arithmetic is in float32: the only rounding is that of the store.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.triton_private import async_copy, gl, gluon, thread_barrier


@gluon.constexpr_function
def _columns(PARTNERS, WARPS):
    """(partners, columns): a thread has two neighbouring columns with all partners."""
    return gl.BlockedLayout([PARTNERS, 2], [1, 32], [1, WARPS], [1, 0])


@gluon.jit
def _coefficients(
    ptr, STAGE: gl.constexpr, PARTNERS: gl.constexpr, COLUMNS: gl.constexpr, WARPS: gl.constexpr
):
    """One stage's table, (quads, columns, quad) in memory, as (pairs, columns) in registers."""
    HALF: gl.constexpr = PARTNERS // 2
    QUAD: gl.constexpr = 4 if HALF > 4 else HALF
    LAYOUT: gl.constexpr = gl.BlockedLayout([HALF, 2], [1, 32], [1, WARPS], [1, 0])
    pair = gl.arange(0, HALF, gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))[None, :]
    return gl.load(
        ptr + STAGE * (HALF * COLUMNS) + (pair // QUAD) * (COLUMNS * QUAD) + column * QUAD + pair % QUAD
    )


@gluon.jit
def _stage(x, u, v, BIT: gl.constexpr, TRANSPOSE: gl.constexpr, WARPS: gl.constexpr):
    """The rotations of one stage on x (partners, columns)."""
    PARTNERS: gl.constexpr = x.shape[0]
    COLUMNS: gl.constexpr = x.shape[1]
    LOW: gl.constexpr = 2**BIT
    pairs = gl.permute(gl.reshape(x, (PARTNERS // (2 * LOW), 2, LOW, COLUMNS)), (0, 2, 3, 1))
    a, b = gl.split(pairs)
    a = gl.reshape(a, (PARTNERS // 2, COLUMNS))
    b = gl.reshape(b, (PARTNERS // 2, COLUMNS))
    u = gl.convert_layout(u, a.type.layout, assert_trivial=True)
    v = gl.convert_layout(v, a.type.layout, assert_trivial=True)
    if TRANSPOSE:
        c, d = u * a + v * b, u * b - v * a
    else:
        c, d = u * a - v * b, u * b + v * a
    pairs = gl.reshape(gl.join(c, d), (PARTNERS // (2 * LOW), LOW, COLUMNS, 2))
    x = gl.reshape(gl.permute(pairs, (0, 3, 1, 2)), (PARTNERS, COLUMNS))
    return gl.convert_layout(x, _columns(PARTNERS, WARPS), assert_trivial=True)


@gluon.jit
def strided_kernel(
    x_ptr, y_ptr, u_ptr, v_ptr, gain_ptr, n_rows, n_eighths, workers,
    TRANSPOSE: gl.constexpr, GROWING: gl.constexpr, GAIN: gl.constexpr, EVEN: gl.constexpr, FIRST: gl.constexpr,
    BITS: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """y = the stages of strides 2^FIRST … 2^(FIRST + BITS − 1) on x; y may be x.

    Args:
        x_ptr: vectors (n_rows, n); n is a multiple of 8, so that copies have 16 bytes.
        y_ptr: where the result goes.
        u_ptr: cosines, as `tables.Coefficients` of a pass with 64 · WARPS columns.
        v_ptr: sines.
        gain_ptr: one float32 factor of the result (GAIN).
        n_rows: vectors.
        n_eighths: n / 8.
        workers: programs per tile of columns.
        TRANSPOSE: rotate the other way.
        GROWING: in order of growing strides.
        EVEN: n is a multiple of 2^(FIRST + BITS).
        FIRST: the first stage.
        BITS: stages, at most 4.
        STAGES: vectors in shared memory.
        WARPS: warps per program.
    """
    PARTNERS: gl.constexpr = 2**BITS
    COLUMNS: gl.constexpr = 64 * WARPS
    SIDE: gl.constexpr = 2**FIRST // COLUMNS  # tiles of columns side by side
    DTYPE: gl.constexpr = x_ptr.dtype.element_ty
    n = n_eighths * 8
    tiles = (n + 2 ** (FIRST + BITS) - 1) // 2 ** (FIRST + BITS) * SIDE
    tile = gl.program_id(0) % tiles
    begin = tile // SIDE * 2 ** (FIRST + BITS) + tile % SIDE * COLUMNS
    TABLE: gl.constexpr = BITS * (PARTNERS // 2) * COLUMNS
    u_ptr += tile * TABLE
    v_ptr += tile * TABLE
    u0 = _coefficients(u_ptr, 0, PARTNERS, COLUMNS, WARPS)
    v0 = _coefficients(v_ptr, 0, PARTNERS, COLUMNS, WARPS)
    if BITS > 1:
        u1 = _coefficients(u_ptr, 1, PARTNERS, COLUMNS, WARPS)
        v1 = _coefficients(v_ptr, 1, PARTNERS, COLUMNS, WARPS)
    if BITS > 2:
        u2 = _coefficients(u_ptr, 2, PARTNERS, COLUMNS, WARPS)
        v2 = _coefficients(v_ptr, 2, PARTNERS, COLUMNS, WARPS)
    if BITS > 3:
        u3 = _coefficients(u_ptr, 3, PARTNERS, COLUMNS, WARPS)
        v3 = _coefficients(v_ptr, 3, PARTNERS, COLUMNS, WARPS)

    LANES: gl.constexpr = COLUMNS // 8  # threads that copy one partner's columns
    COPIED: gl.constexpr = gl.BlockedLayout(
        [1, 8], [32 // LANES if LANES < 32 else 1, min(LANES, 32)], [WARPS, 1], [1, 0]
    )
    from_at = begin + (
        gl.arange(0, PARTNERS, gl.SliceLayout(1, COPIED))[:, None] * 2**FIRST
        + gl.arange(0, COLUMNS, gl.SliceLayout(0, COPIED))[None, :]
    )
    OWN: gl.constexpr = _columns(PARTNERS, WARPS)
    to_at = begin + (
        gl.arange(0, PARTNERS, gl.SliceLayout(1, OWN))[:, None] * 2**FIRST
        + gl.arange(0, COLUMNS, gl.SliceLayout(0, OWN))[None, :]
    )
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    stages = gl.allocate_shared_memory(DTYPE, [STAGES, PARTNERS, COLUMNS], PLAIN)
    first_row = gl.program_id(0) // tiles
    for s in gl.static_range(STAGES - 1):
        _bring(stages.index(s), x_ptr, first_row + s * workers, from_at, n_rows, n, EVEN)
    i = 0
    for row in range(first_row, n_rows, workers):
        async_copy.wait_group(STAGES - 2)
        thread_barrier()
        x = stages.index(i % STAGES).load(OWN).to(gl.float32)
        _bring(
            stages.index((i + STAGES - 1) % STAGES), x_ptr, row + (STAGES - 1) * workers, from_at, n_rows, n, EVEN
        )  # fmt: skip
        if not GROWING and BITS > 3:
            x = _stage(x, u3, v3, 3, TRANSPOSE, WARPS)
        if not GROWING and BITS > 2:
            x = _stage(x, u2, v2, 2, TRANSPOSE, WARPS)
        if not GROWING and BITS > 1:
            x = _stage(x, u1, v1, 1, TRANSPOSE, WARPS)
        x = _stage(x, u0, v0, 0, TRANSPOSE, WARPS)
        if GROWING and BITS > 1:
            x = _stage(x, u1, v1, 1, TRANSPOSE, WARPS)
        if GROWING and BITS > 2:
            x = _stage(x, u2, v2, 2, TRANSPOSE, WARPS)
        if GROWING and BITS > 3:
            x = _stage(x, u3, v3, 3, TRANSPOSE, WARPS)
        if GAIN:
            x = x * gl.load(gain_ptr)
        target = y_ptr + gl.to_tensor(row).to(gl.int64) * n + to_at
        if EVEN:
            gl.store(target, x.to(DTYPE))
        else:
            gl.store(target, x.to(DTYPE), mask=to_at < n)
        i += 1  # noqa: SIM113 (Gluon knows no enumerate)
    async_copy.wait_group(0)


@gluon.jit
def _bring(stage, x_ptr, row, at, n_rows, n, EVEN: gl.constexpr):
    """Begin to copy a vector's columns to shared memory; beyond the last vector, the last one."""
    source = x_ptr + gl.minimum(row, n_rows - 1).to(gl.int64) * n + at
    if EVEN:
        async_copy.async_copy_global_to_shared(stage, source)
    else:
        async_copy.async_copy_global_to_shared(stage, source, mask=at < n)
    async_copy.commit_group()
