"""Cosines and sines of angles, in a few instructions each."""

from __future__ import annotations

import triton
import triton.language as tl

QUARTERS = tl.constexpr(0.6366197723675814)  # quarter turns per radian, 2/π
RADIANS = tl.constexpr(1.5707963267948966)


@triton.jit
def cos_sin(theta):
    """cos θ and sin θ as float32, each within about one rounding.

    The reduction to |r| ≤ π/4 is done in float64, so that angles of many turns lose little. The rest are Taylor series,
    whose next terms are below 2e-9 there. Triton's own functions take a hundred instructions, most of them for angles
    that nobody has.
    """
    turns = theta.to(tl.float64) * QUARTERS
    nearest = tl.floor(turns + 0.5)
    r = ((turns - nearest) * RADIANS).to(tl.float32)
    quarter = nearest.to(tl.int64).to(tl.int32) & 3
    s = r * r
    sine = r + r * s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880))))
    cosine = 1.0 - s * (0.5 - s * (1.0 / 24 - s * (1.0 / 720 - s * (1.0 / 40320 - s * (1.0 / 3628800)))))
    odd = (quarter & 1) == 1
    c = tl.where(odd, sine, cosine)
    c = tl.where((quarter == 1) | (quarter == 2), -c, c)
    s = tl.where(odd, cosine, sine)
    return c, tl.where(quarter >= 2, -s, s)
