"""Triton kernels of a GivensAdam step: Adam inside a rotation there and back, the last rotation with the
parameter's update, and one layer of a Jacobi pass. Butterflies that fit one program (n ≤ 4096).

The two sides of a matrix lie on different axes. Instead of transposing between them, kernels read TURNED
input: vector ``row`` at ``coordinate · n_rows + row``. Neighbouring programs read neighbouring rows, so the
cache joins their accesses.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu_butterfly_kernels import direct_group, load_tile, store_tile, whole_sweep


@triton.jit
def _load(
    x_ptr, rows, tile, n, n_rows, DTYPE: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    if TURNED:
        coordinates = tl.arange(0, 2**BITS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (coordinates < n)[None, :]
        offsets = coordinates[None, :] * n_rows + rows[:, None]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
    else:
        x = load_tile(x_ptr, rows, tile, n, n_rows, DTYPE, GROUP, EVEN, GROUPS, BITS, 1, ROWS, 1)
    return x


@triton.jit
def adam_kernel(
    x_ptr, y_ptr, m_ptr, s_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, n, n_rows,
    new1, kept2, new2, eps, factor,
    TURNED: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y = Q · Adam(Qᵀ x) for vectors on rows; the moments m and s, in the basis, move on in place.

    Adam's direction is factor · m / (√s + eps), with the corrections of its start taken out as numbers. The tables
    come twice for the reason given in `rotate_kernel`.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(1)  # 0: a vector is one tile
    SWEEP: tl.constexpr = BITS * (2**BITS // 2)
    DTYPE: tl.constexpr = u_ptr.dtype.element_ty
    FIRST: tl.constexpr = direct_group(False, True, GROUPS, 1, DIRECT)
    TURN: tl.constexpr = direct_group(False, False, GROUPS, 1, DIRECT)
    LAST: tl.constexpr = direct_group(True, False, GROUPS, 1, DIRECT)
    z = _load(x_ptr, rows, tile, n, n_rows, DTYPE, FIRST, EVEN, GROUPS, BITS, ROWS, TURNED)
    for d in range(DEPTH):
        z = whole_sweep(z, u_ptr + d * SWEEP, v_ptr + d * SWEEP, GROUPS, BITS, 1, ROWS, False, True, False)
    m = load_tile(m_ptr, rows, tile, n, n_rows, DTYPE, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    m = m + new1 * (z - m)
    store_tile(m_ptr, m, rows, tile, n, n_rows, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    s = load_tile(s_ptr, rows, tile, n, n_rows, DTYPE, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    s = kept2 * s + new2 * z * z
    store_tile(s_ptr, s, rows, tile, n, n_rows, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    z = factor * m / (tl.sqrt(s) + eps)
    for i in range(DEPTH):
        d = (DEPTH - 1 - i) * SWEEP
        z = whole_sweep(z, u_again_ptr + d, v_again_ptr + d, GROUPS, BITS, 1, ROWS, True, False, False)
    store_tile(y_ptr, z, rows, tile, n, n_rows, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)


@triton.jit
def update_kernel(
    x_ptr, p_ptr, new_ptr, u_ptr, v_ptr, n, n_rows, kept, lr,
    TURNED: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """new = kept · p − lr · Q x for vectors on rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(1)  # 0: a vector is one tile
    SWEEP: tl.constexpr = BITS * (2**BITS // 2)
    DTYPE: tl.constexpr = u_ptr.dtype.element_ty
    FIRST: tl.constexpr = direct_group(True, True, GROUPS, 1, DIRECT)
    LAST: tl.constexpr = direct_group(True, False, GROUPS, 1, DIRECT)
    z = _load(x_ptr, rows, tile, n, n_rows, DTYPE, FIRST, EVEN, GROUPS, BITS, ROWS, TURNED)
    for i in range(DEPTH):
        d = (DEPTH - 1 - i) * SWEEP
        z = whole_sweep(z, u_ptr + d, v_ptr + d, GROUPS, BITS, 1, ROWS, True, False, False)
    p = load_tile(p_ptr, rows, tile, n, n_rows, DTYPE, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)
    store_tile(new_ptr, kept * p - lr * z, rows, tile, n, n_rows, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)


@triton.jit
def jacobi_layer_kernel(
    z_ptr, i_ptr, j_ptr, cross_ptr, difference_ptr, n_pairs, n, r, PAIRS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Turn rows i and j of z (n, r) so that they are uncorrelated, the larger first; Σ zᵢzⱼ and Σ zᵢ² − Σ zⱼ².

    c and s come from cos 2θ by half-angle formulas, the larger of the two first: both keep all their digits.
    """
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    batch = tl.program_id(1).to(tl.int64)
    some = pair < n_pairs
    i, j = tl.load(i_ptr + pair, mask=some, other=0), tl.load(j_ptr + pair, mask=some, other=0)
    columns = tl.arange(0, COLUMNS)
    mask = some[:, None] & (columns < r)[None, :]
    at_i = z_ptr + (batch * n + i)[:, None] * r + columns[None, :]
    at_j = z_ptr + (batch * n + j)[:, None] * r + columns[None, :]
    a, b = tl.load(at_i, mask=mask, other=0.0), tl.load(at_j, mask=mask, other=0.0)
    cross, difference = tl.sum(a * b, axis=1), tl.sum(a * a - b * b, axis=1)
    tl.store(cross_ptr + batch * n_pairs + pair, cross, mask=some)
    tl.store(difference_ptr + batch * n_pairs + pair, difference, mask=some)
    length = tl.sqrt(difference * difference + 4 * cross * cross)
    nothing = length == 0.0
    length = tl.where(nothing, 1.0, length)
    larger = tl.where(nothing, 1.0, tl.sqrt(0.5 * (1 + tl.abs(difference) / length)))
    smaller = tl.abs(cross) / (length * larger)
    flat = difference >= 0
    c = tl.where(flat, larger, smaller)
    s = tl.where(cross < 0, -1.0, 1.0) * tl.where(flat, smaller, larger)
    tl.store(at_i, c[:, None] * a + s[:, None] * b, mask=mask)
    tl.store(at_j, c[:, None] * b - s[:, None] * a, mask=mask)
