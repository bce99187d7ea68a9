"""Powers of two that bring vectors of any size near 1, and their results back.

A rotation's steps can exceed the range of the dtype although its result does not: by a factor of √n in the plain form,
by the reciprocal of the smallest scale in the fast form. Kernels therefore take each vector times a power of two. That
rounds nothing, and costs one maximum per vector and two multiplications per number.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exponent(largest):
    """e with 2^e ≤ largest < 2^(e+1), but at least −120 and at most 120; for float64, 1000.

    So 2^-e and 2^e are both normal numbers, and three such powers multiply to what one more can undo.
    """
    if largest.dtype == tl.float64:
        LIMIT: tl.constexpr = 1000
        e = ((largest.to(tl.int64, bitcast=True) >> 52) & 2047).to(tl.int32) - 1023
    else:
        LIMIT: tl.constexpr = 120
        e = ((largest.to(tl.int32, bitcast=True) >> 23) & 255) - 127
    return tl.minimum(tl.maximum(e, -LIMIT), LIMIT)


@triton.jit
def power(e, DTYPE: tl.constexpr):
    """2^e, a normal number."""
    if DTYPE == tl.float64:  # noqa: SIM300 (no constant)
        result = ((e.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        result = ((e + 127) << 23).to(tl.float32, bitcast=True)
    return result


@triton.jit
def times_power(x, e, PARTS: tl.constexpr):
    """x · 2^e by so many factors, all on the same side of 1: no product on the way leaves the range before the last."""
    part = e // PARTS
    for _ in tl.static_range(PARTS - 1):
        x = x * power(part, x.dtype)
    return x * power(e - (PARTS - 1) * part, x.dtype)
