"""Powers of two that bring vectors of any size near 1, and their results back.

A rotation's steps can exceed the range of the dtype although its result does not: by a factor of √n in the plain form,
by the reciprocal of the smallest scale in the fast form. Kernels therefore take each vector times a power of two. That
rounds nothing, and costs one maximum per vector and two multiplications per number.

Gradients of angles are sums Σ (g_j y_i − g_i y_j) over vectors y and their gradients g. A program takes each g times a
power of its own, and each y times another, such that the products of all vectors have one power 2^−E in common, and the
largest is near 1. E grows when a larger product comes: what was summed before is taken times another power of two.
`backward.collect_kernel` adds up the programs' sums by their E, in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(-4000)  # stands for the exponent of zero: below all sums of two exponents


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


@triton.jit
def product_exponent(y_largest, g_largest):
    """The exponent of the products of two vectors with these largest numbers."""
    nothing = (y_largest == 0) | (g_largest == 0)
    return tl.where(nothing, NOTHING, exponent(y_largest) + exponent(g_largest))


@triton.jit
def at_least_lost(e, DTYPE: tl.constexpr):
    """e ≤ 0, or so small a number that 2^e is lost beside 1, although vectors times 2^e keep their digits."""
    return tl.maximum(e, -400 if DTYPE == tl.float64 else -80)  # noqa: SIM300 (no constant)
