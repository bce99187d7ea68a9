"""Triton kernels of a GivensAdam step: Adam between two rotations, the last rotation with the parameter's update, and
some layers of a Jacobi pass. A program holds whole vectors (n ≤ 4096).

The two sides of a matrix lie on different axes. Instead of transposing between them, kernels read TURNED
input: vector ``row`` at ``coordinate · n_rows + row``. Neighbouring programs read neighbouring rows, so the
cache joins their accesses.

``numbers_ptr`` is a `DeviceNumbers.row`. What changes from step to step is read from there, so that a recorded launch
can be replayed. ``new1``, ``kept2`` and ``new2`` are 1 − β₁, β₂ and 1 − β₂.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.butterfly import whole_sweep
from swallowtail.kernels.gpu.triton.groups import direct_group
from swallowtail.kernels.gpu.triton.tiles import load_tile, store_tile
from swallowtail.optim.adam.state import DeviceNumbers

EPS = tl.constexpr(DeviceNumbers.index("eps"))
FACTOR = tl.constexpr(DeviceNumbers.index("factor"))
LR = tl.constexpr(DeviceNumbers.index("lr"))
KEPT = tl.constexpr(DeviceNumbers.index("kept"))
SLOT = tl.constexpr(DeviceNumbers.index("slot"))
BOUND = tl.constexpr(DeviceNumbers.index("bound"))
USED = tl.constexpr(DeviceNumbers.index("used"))


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
    x_ptr, y_ptr, m_ptr, second_ptr, u_ptr, v_ptr, u_again_ptr, v_again_ptr, numbers_ptr, n, n_rows, new1, kept2, new2,
    TURNED: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y = Q · Adam(Qᵀ x) for vectors on rows; the moments, m and ``second``, in the basis, move on in place.

    Adam's direction is factor · m / (√second + eps), with the corrections of the first steps taken out as numbers. The
    tables come twice for the reason given in `rotate_kernel`.
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
    used = tl.load(numbers_ptr + USED) > 0
    m = load_tile(m_ptr, rows, tile, n, n_rows, DTYPE, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    m = tl.where(used, m + new1 * (z - m), m)
    store_tile(m_ptr, m, rows, tile, n, n_rows, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    second = load_tile(second_ptr, rows, tile, n, n_rows, DTYPE, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    second = tl.where(used, kept2 * second + new2 * z * z, second)
    store_tile(second_ptr, second, rows, tile, n, n_rows, TURN, EVEN, GROUPS, BITS, 1, ROWS, 1)
    eps, factor = tl.load(numbers_ptr + EPS).to(DTYPE), tl.load(numbers_ptr + FACTOR).to(DTYPE)
    bound = tl.load(numbers_ptr + BOUND).to(DTYPE)
    z = tl.minimum(tl.maximum(factor * m / (tl.sqrt(second) + eps), -bound), bound)
    for i in range(DEPTH):
        d = (DEPTH - 1 - i) * SWEEP
        z = whole_sweep(z, u_again_ptr + d, v_again_ptr + d, GROUPS, BITS, 1, ROWS, True, False, False)
    store_tile(y_ptr, z, rows, tile, n, n_rows, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)


@triton.jit
def update_kernel(
    x_ptr, p_ptr, new_ptr, u_ptr, v_ptr, numbers_ptr, n, n_rows,
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
    lr, kept = tl.load(numbers_ptr + LR).to(DTYPE), tl.load(numbers_ptr + KEPT).to(DTYPE)
    store_tile(new_ptr, kept * p - lr * z, rows, tile, n, n_rows, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)


@triton.jit
def carry_kernel(
    z_ptr, u_ptr, v_ptr, u_new_ptr, v_new_ptr, n, n_rows,
    TURNED: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, DIRECT: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """z ← Q_newᵀ Q z in place, for vectors on rows, or TURNED."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(1)  # 0: a vector is one tile
    SWEEP: tl.constexpr = BITS * (2**BITS // 2)
    DTYPE: tl.constexpr = u_ptr.dtype.element_ty
    FIRST: tl.constexpr = direct_group(True, True, GROUPS, 1, DIRECT)
    LAST: tl.constexpr = direct_group(False, False, GROUPS, 1, DIRECT)
    z = _load(z_ptr, rows, tile, n, n_rows, DTYPE, FIRST, EVEN, GROUPS, BITS, ROWS, TURNED)
    for i in range(DEPTH):
        d = (DEPTH - 1 - i) * SWEEP
        z = whole_sweep(z, u_ptr + d, v_ptr + d, GROUPS, BITS, 1, ROWS, True, False, False)
    for d in range(DEPTH):
        z = whole_sweep(
            z, u_new_ptr + d * SWEEP, v_new_ptr + d * SWEEP, GROUPS, BITS, 1, ROWS, False, True, False
        )
    if TURNED:
        coordinates = tl.arange(0, 2**BITS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (coordinates < n)[None, :]
        tl.store(z_ptr + coordinates[None, :] * n_rows + rows[:, None], z, mask=mask)
    else:
        store_tile(z_ptr, z, rows, tile, n, n_rows, LAST, EVEN, GROUPS, BITS, 1, ROWS, 1)


@triton.jit
def sketch_kernel(
    g_ptr, sketch_ptr, numbers_ptr, start_at, n, columns, every, along, across, BLOCK: tl.constexpr
):
    """Columns start, start + every, … of a matrix, n numbers ``along`` apart, to their slot of the sketch."""
    slot = tl.load(numbers_ptr + SLOT).to(tl.int64)
    start = tl.load(numbers_ptr + start_at).to(tl.int64)
    column = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    taken = tl.load(g_ptr + (start + column * every) * across + i.to(tl.int64) * along, mask=i < n)
    written = tl.where(tl.load(numbers_ptr + USED) > 0, n, 0)
    tl.store(sketch_ptr + (slot * columns + column) * n + i, taken, mask=i < written)


@triton.jit
def _jacobi_stage(
    z, cross_ptr, difference_ptr, noise, base, low, n,
    ABOVE: tl.constexpr, BELOW: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One layer on the rows of a program, partners BELOW rows apart; the sums go to where its angles begin."""
    a, b = tl.split(tl.permute(tl.reshape(z, (ABOVE, 2, BELOW, COLUMNS)), (0, 2, 3, 1)))
    # An angle from rounding errors would be random: sums of zero are no rotation.
    some = tl.sum(a * a + b * b, axis=2) > noise
    cross = tl.where(some, tl.sum(a * b, axis=2), 0.0)
    difference = tl.where(some, tl.sum(a * a - b * b, axis=2), 0.0)
    i = base + low * (2 * BELOW * tl.arange(0, ABOVE)[:, None] + tl.arange(0, BELOW)[None, :])
    stride = low * BELOW
    place = i // (2 * stride) * stride + i % stride
    tl.store(cross_ptr + place, cross, mask=i + stride < n)
    tl.store(difference_ptr + place, difference, mask=i + stride < n)
    # c and s from cos 2θ by half-angle formulas, the larger of the two first: both keep all their digits.
    length = tl.sqrt(difference * difference + 4 * cross * cross)
    nothing = length == 0.0
    length = tl.where(nothing, 1.0, length)
    larger = tl.where(nothing, 1.0, tl.sqrt(0.5 * (1 + tl.abs(difference) / length)))
    smaller = tl.abs(cross) / (length * larger)
    flat = difference >= 0
    c = tl.where(flat, larger, smaller)[:, :, None]
    s = (tl.where(cross < 0, -1.0, 1.0) * tl.where(flat, smaller, larger))[:, :, None]
    z = tl.permute(tl.join(c * a + s * b, c * b - s * a), (0, 3, 1, 2))
    return tl.reshape(z, (2 * ABOVE * BELOW, COLUMNS))


@triton.jit
def jacobi_kernel(
    z_ptr, cross_ptr, difference_ptr, starts_ptr, noise_ptr, layer, low, n, r, n_rotations,
    STAGES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """STAGES layers of a Jacobi pass over rows of z (n, r), strides falling to ``low``: Σ zᵢzⱼ and Σ zᵢ² − Σ zⱼ².

    A program holds the 2^STAGES rows that meet in these layers. Pairs are turned so that they are uncorrelated, the
    larger first. Rows beyond n are zero, which no rotation changes. ``starts_ptr``: where each layer's angles begin.
    ``noise_ptr``: for each of the batch, up to which Σ zᵢ² + Σ zⱼ² a pair holds only rounding errors.
    """
    program = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    base = (program // low) * (low * 2**STAGES) + program % low
    rows, columns = base + low * tl.arange(0, 2**STAGES), tl.arange(0, COLUMNS)
    at = z_ptr + (batch * n + rows)[:, None] * r + columns[None, :]
    mask = (rows < n)[:, None] & (columns < r)[None, :]
    z = tl.load(at, mask=mask, other=0.0)
    noise = tl.load(noise_ptr + batch)
    for stage in tl.static_range(STAGES):
        start = batch * n_rotations + tl.load(starts_ptr + layer + stage)
        z = _jacobi_stage(
            z, cross_ptr + start, difference_ptr + start, noise, base, low, n,
            2**stage, 2 ** (STAGES - 1 - stage), COLUMNS,
        )  # fmt: skip
    tl.store(at, z, mask=mask)
