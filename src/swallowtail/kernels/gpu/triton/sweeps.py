"""Triton kernels between angles and the matrices of blocks: matrices from angles, angle gradients from matrices.

A level is a set of disjoint pairs of one block (`group_plan`). On column vectors a rotation G takes a coordinate c with
partner p to cos θ · x[c] + σ sin θ · x[p]. The sign σ is minus at the first coordinate of a pair, plus at the second.
Arithmetic is in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.angles import cos_sin


@triton.jit
def _level(angles_ptr, partner_ptr, angle_ptr, level, block, blocks, SIZE: tl.constexpr):
    """Partners, cosines, signed sines and angle numbers of the coordinates of a block."""
    at = (level * blocks + block) * SIZE + tl.arange(0, SIZE)
    number = tl.load(angle_ptr + at)
    theta = tl.load(angles_ptr + tl.abs(number) - 1, mask=number != 0, other=0.0)
    cosine, sine = cos_sin(theta)
    return tl.load(partner_ptr + at), cosine, tl.where(number < 0, -sine, sine), number


@triton.jit
def _turn_rows(m, partner, u, v, SIZE: tl.constexpr, COLS: tl.constexpr):
    """One level on the columns of m (SIZE, COLS)."""
    other = tl.gather(m, tl.broadcast_to(partner[:, None], (SIZE, COLS)), axis=0)
    return u[:, None] * m + v[:, None] * other


@triton.jit
def _turn_columns(m, partner, u, v, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """One level on the rows of m (ROWS, SIZE)."""
    other = tl.gather(m, tl.broadcast_to(partner[None, :], (ROWS, SIZE)), axis=1)
    return u[None, :] * m + v[None, :] * other


@triton.jit
def matrices_kernel(
    angles_ptr, partner_ptr, angle_ptr, start_ptr, middle_ptr, out_ptr, transposed_ptr, levels, blocks,
    SYMMETRIC: tl.constexpr, BOTH: tl.constexpr, SIZE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The matrix Q of every block, (blocks, to, from), or Q D Qᵀ (SYMMETRIC); transposed ones too (BOTH).

    A program makes COLS columns of one.
    """
    block = tl.program_id(0)
    row = tl.arange(0, SIZE)
    column = tl.program_id(1) * COLS + tl.arange(0, COLS)
    m = (row[:, None] == column[None, :]).to(tl.float32)
    # In each loop the next level's tables are loaded before the present one is done: their latency is then hidden.
    if SYMMETRIC:
        partner, u, v, _ = _level(angles_ptr, partner_ptr, angle_ptr, 0, block, blocks, SIZE)
        for k in range(levels):
            following = tl.minimum(k + 1, levels - 1)
            after = _level(angles_ptr, partner_ptr, angle_ptr, following, block, blocks, SIZE)
            m = _turn_rows(m, partner, u, -v, SIZE, COLS)
            partner, u, v, _ = after
        start = tl.load(start_ptr + block)
        inside = start + row < tl.load(start_ptr + block + 1)
        m *= tl.load(middle_ptr + start + row, mask=inside, other=0.0).to(tl.float32)[:, None]
    partner, u, v, _ = _level(angles_ptr, partner_ptr, angle_ptr, levels - 1, block, blocks, SIZE)
    for k in range(levels):
        following = tl.maximum(levels - 2 - k, 0)
        after = _level(angles_ptr, partner_ptr, angle_ptr, following, block, blocks, SIZE)
        m = _turn_rows(m, partner, u, v, SIZE, COLS)
        partner, u, v, _ = after
    start = block.to(tl.int64) * (SIZE * SIZE)
    m = m.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + start + row[:, None] * SIZE + column[None, :], m)
    if BOTH:
        tl.store(transposed_ptr + start + column[None, :] * SIZE + row[:, None], m)


@triton.jit
def angle_gradients_kernel(
    angles_ptr, partner_ptr, angle_ptr, sums_ptr, out_ptr, levels, blocks, workers, n_angles,
    TRANSPOSE: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Angle gradients from W = Σ g yᵀ of every block, where y = Q x, or Qᵀ x (TRANSPOSE), and g is its gradient.

    With P the product of the levels before a rotation, its gradient is the wedge product g_j y_i − g_i y_j of Pᵀy and
    Pᵀg, summed over all vectors: p_jᵀ (W − Wᵀ) p_i with the columns p of P. A program has ROWS rows of P and of
    (W − Wᵀ) P, and writes its part of the scalar products to its row of out, (SIZE / ROWS, n_angles).

    Args:
        angles_ptr: shape (n_angles,).
        partner_ptr: as in `group_plan.GroupPlan`.
        angle_ptr: likewise.
        sums_ptr: W in parts that are to be added up, (workers, blocks, SIZE, SIZE).
        out_ptr: where the parts go.
        levels: how many there are.
        blocks: likewise.
        workers: parts of W.
        n_angles: likewise.
        TRANSPOSE: y = Qᵀ x.
        SIZE: of a block.
        ROWS: per program.
    """
    block = tl.program_id(0)
    slab = tl.program_id(1)
    row = slab * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, SIZE)
    p = (row[:, None] == column[None, :]).to(tl.float32)
    a = tl.zeros((ROWS, SIZE), tl.float32)
    for worker in range(workers):
        ptr = sums_ptr + (tl.cast(worker, tl.int64) * blocks + block) * (SIZE * SIZE)
        a += tl.load(ptr + row[:, None] * SIZE + column[None, :])
        a -= tl.load(ptr + column[None, :] * SIZE + row[:, None])
    first = levels - 1 if TRANSPOSE else 0
    partner, u, v, number = _level(angles_ptr, partner_ptr, angle_ptr, first, block, blocks, SIZE)
    for k in range(levels):
        following = tl.maximum(levels - 2 - k, 0) if TRANSPOSE else tl.minimum(k + 1, levels - 1)
        after = _level(angles_ptr, partner_ptr, angle_ptr, following, block, blocks, SIZE)
        other = tl.gather(p, tl.broadcast_to(partner[None, :], (ROWS, SIZE)), axis=1)
        wedge = tl.sum(other * a, axis=0)
        if TRANSPOSE:
            wedge = -wedge
        else:
            v = -v  # from the right, G turns the other way
        tl.store(out_ptr + slab.to(tl.int64) * n_angles - number - 1, wedge, mask=number < 0)
        p = _turn_columns(p, partner, u, v, ROWS, SIZE)
        a = _turn_columns(a, partner, u, v, ROWS, SIZE)
        partner, u, v, number = after


@triton.jit
def _store_fragments(out_ptr, m, place, TRANSPOSED: tl.constexpr, PARTS: tl.constexpr):
    """A 16 × 16 matrix in the order in which `gluon.half_rounds` loads it: lane by lane, four registers of two numbers.

    Lane 4 g + t has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of rows g and g + 8. With two PARTS, four more registers
    have what rounding to fp16 has left.
    """
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    row, column = (j, i) if TRANSPOSED else (i, j)
    at = (row % 8 * 4 + column % 8 // 2) * (8 * PARTS) + (row // 8 + column // 8 * 2) * 2 + column % 2
    out_ptr += place.to(tl.int64) * (256 * PARTS)
    leading = m.to(tl.float16)
    tl.store(out_ptr + at, leading)
    if PARTS == 2:
        tl.store(out_ptr + at + 8, (m - leading.to(tl.float32)).to(tl.float16))


@triton.jit
def fragments_kernel(
    angles_ptr, partner_ptr, angle_ptr, scaled_ptr, middle_ptr, out_ptr, levels, blocks, warps, inner, total, n_angles,
    n, TO_BASIS: tl.constexpr, FROM_BASIS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The matrices of all groups of 16 for `gluon.half_rounds`, (columns, total steps, warps, 256 · PARTS), fp16.

    Column blocks of longer vectors have the same steps, and angles and eigenvalues of their own. Qᵀ takes the steps in
    order from the first place on, Q in the opposite order to the last place. Where both are asked for, matrices of Qᵀ
    have the eigenvalues, and those of steps from ``inner`` on are Q D Qᵀ.

    Args:
        angles_ptr: shape (columns, n_angles).
        partner_ptr, angle_ptr: as in `group_plan.GroupPlan`.
        scaled_ptr: the coordinate whose eigenvalue stands at each place of a group, (blocks, 16); −1: none.
        middle_ptr: the eigenvalues, float32, (columns, n).
        out_ptr: where the matrices go.
        levels: how many there are.
        blocks: likewise.
        warps: groups per step.
        inner: as above.
        total: steps that are done.
        n_angles: of a column block.
        n: its coordinates.
        TO_BASIS, FROM_BASIS: what is asked for.
        PARTS: of a matrix, 1 or 2.
    """
    block = tl.program_id(0)
    column = tl.program_id(1)
    angles_ptr += column * n_angles
    middle_ptr += column * n
    out_ptr += column.to(tl.int64) * (total * warps) * (256 * PARTS)
    step, warp = block // warps, block % warps
    i = tl.arange(0, 16)
    m = (i[:, None] == i[None, :]).to(tl.float32)
    d = i.to(tl.float32) * 0 + 1
    if TO_BASIS and FROM_BASIS:
        coordinate = tl.load(scaled_ptr + block * 16 + i)
        d = tl.load(middle_ptr + coordinate, mask=coordinate >= 0, other=1.0)
    both = TO_BASIS and FROM_BASIS and step >= inner
    if both:
        for k in range(levels):
            partner, u, v, _ = _level(angles_ptr, partner_ptr, angle_ptr, k, block, blocks, 16)
            m = _turn_rows(m, partner, u, -v, 16, 16)
        m *= d[:, None]
    for k in range(levels):
        partner, u, v, _ = _level(angles_ptr, partner_ptr, angle_ptr, levels - 1 - k, block, blocks, 16)
        m = _turn_rows(m, partner, u, v, 16, 16)
    if both:
        _store_fragments(out_ptr, m, step * warps + warp, False, PARTS)
    else:
        if TO_BASIS:
            _store_fragments(out_ptr, m * d[None, :], step * warps + warp, True, PARTS)
        if FROM_BASIS:
            _store_fragments(out_ptr, m, (total - 1 - step) * warps + warp, False, PARTS)
