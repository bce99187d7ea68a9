"""Groups of stages: how the stages of a pass are shared out, and one rotation of a stage.

A pass works on tiles of N = COLS · 2^BITS numbers per vector, ROWS vectors at a time (`tiles`). Its BITS stages come
in GROUPS groups of up to four. A group of r stages brings the 2^r partners of each of M = N / 2^r positions into one
thread, as a tensor (2^r, ROWS, M). Splitting and joining that first axis then moves nothing, so data crosses threads
only between groups.

The coefficients u and v of a stage (`kernels.gpu.tables` says what they are) number N/2 each. They lie in memory as
(H/4, M, 4) with H = 2^(r-1), so that a thread finds its own side by side.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.angles import cos_sin


@triton.constexpr_function
def radix(GROUP, GROUPS, BITS):
    """Stages in a group: shared out evenly, with one more for the groups of the smallest strides."""
    return BITS // GROUPS + (1 if GROUP < BITS % GROUPS else 0)


@triton.constexpr_function
def first_bit(GROUP, GROUPS, BITS):
    """The first stage of a group, counted from the smallest stride of the pass."""
    return GROUP * (BITS // GROUPS) + (GROUP if GROUP < BITS % GROUPS else BITS % GROUPS)


@triton.constexpr_function
def direct_group(GROWING, FIRST, GROUPS, COLS, DIRECT):
    """The group in whose layout a tile is loaded (FIRST) or stored, or −1 where plain rows are better.

    A sweep begins with its group of smallest strides if strides are GROWING, and ends with it if they fall. Memory is
    accessed in that group's own layout where neighbouring threads then take neighbouring coordinates.
    """
    group = (0 if GROWING else GROUPS - 1) if FIRST else (GROUPS - 1 if GROWING else 0)
    return group if DIRECT and (COLS > 1 or group == GROUPS - 1) else -1


@triton.jit
def to_group(x, RADIX: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ROWS: tl.constexpr):
    """(ROWS, N) → (RADIX, ROWS, M): the partners of a group on the first axis."""
    x = tl.permute(tl.reshape(x, (ROWS, HIGH, RADIX, LOW)), (2, 0, 1, 3))
    return tl.reshape(x, (RADIX, ROWS, HIGH * LOW))


@triton.jit
def from_group(x, RADIX: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ROWS: tl.constexpr):
    """(RADIX, ROWS, M) → (ROWS, N)."""
    x = tl.permute(tl.reshape(x, (RADIX, ROWS, HIGH, LOW)), (1, 2, 0, 3))
    return tl.reshape(x, (ROWS, HIGH * RADIX * LOW))


@triton.jit
def table_offsets(STAGE: tl.constexpr, H: tl.constexpr, M: tl.constexpr):
    """Offsets of one stage's coefficients in its table: shape (M, H/4, 4), or (M, 1, H) when H < 4.

    M comes first because the compiler spreads its threads over the first of several equal axes. Each position then
    belongs to one thread.
    """
    WIDE: tl.constexpr = 4 if H >= 4 else H
    high = tl.arange(0, H // WIDE)[None, :, None] * (M * WIDE)
    return STAGE * (M * H) + tl.arange(0, M)[:, None, None] * WIDE + high + tl.arange(0, WIDE)[None, None, :]


@triton.jit
def load_coefficients(
    ptr, offsets, H: tl.constexpr, M: tl.constexpr, ABOVE: tl.constexpr, BELOW: tl.constexpr
):
    """One stage's coefficients as (ABOVE, BELOW, 1, M), like the sides that `partners` returns."""
    return tl.reshape(tl.permute(tl.load(ptr + offsets), (1, 2, 0)), (ABOVE, BELOW, 1, M))


@triton.jit
def coefficients_of_angles(
    index_ptr, angles_ptr, offsets, H: tl.constexpr, M: tl.constexpr, ABOVE: tl.constexpr, BELOW: tl.constexpr
):
    """The plain u and v of one stage from the angles themselves; the index says which angle belongs to which place."""
    index = tl.load(index_ptr + offsets)
    c, s = cos_sin(tl.load(angles_ptr + index - 1, mask=index > 0, other=0.0))
    u = tl.reshape(tl.permute(c, (1, 2, 0)), (ABOVE, BELOW, 1, M))
    return u, tl.reshape(tl.permute(s, (1, 2, 0)), (ABOVE, BELOW, 1, M))


@triton.jit
def partners(x, ABOVE: tl.constexpr, BELOW: tl.constexpr, ROWS: tl.constexpr, M: tl.constexpr):
    """Split (2·ABOVE·BELOW, ROWS, M) into the two sides of its pairs, each (ABOVE, BELOW, ROWS, M)."""
    return tl.split(tl.permute(tl.reshape(x, (ABOVE, 2, BELOW, ROWS, M)), (0, 2, 3, 4, 1)))


@triton.jit
def rejoin(a, b, ABOVE: tl.constexpr, BELOW: tl.constexpr, ROWS: tl.constexpr, M: tl.constexpr):
    """Undo `partners`."""
    return tl.reshape(tl.permute(tl.join(a, b), (0, 4, 1, 2, 3)), (2 * ABOVE * BELOW, ROWS, M))


@triton.jit
def step(a, b, u, v, TRANSPOSE: tl.constexpr, FAST: tl.constexpr):
    """Rotate the pair (a, b) by Q, or by Qᵀ (TRANSPOSE); `kernels.gpu.tables` has the formulas."""
    if FAST:
        if TRANSPOSE:
            p = a + u * b
            q = b - v * a
        else:
            p = a - v * b
            q = b + u * a
    else:
        if TRANSPOSE:
            p = u * a + v * b
            q = u * b - v * a
        else:
            p = u * a - v * b
            q = u * b + v * a
    return p, q
