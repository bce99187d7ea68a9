"""Adam's direction in a rotated basis: how large an entry can be, and how much further entries go that agree.

`further` is plain arithmetic on purpose: PyTorch calls it on tensors, and Numba compiles it. Triton takes only
functions of modules that import it, so its kernel has the formula once more. Tests compare them.
"""

from __future__ import annotations

import math
from typing import Any

LARGEST_DIRECTION = 1e6  # where β₁² ≥ β₂ there is no bound; nobody means to go a million times the rate
GAIN = 6.0  # how much further an entry goes where all gradients agree


def direction_bound(beta1: float, beta2: float, t: int) -> float:
    """How large an entry of Adam's direction can be after t steps in one basis (Cauchy–Schwarz), and a little more.

    Where a new basis brings some of m to an entry with hardly any v, m/√v could be thousands of times larger.
    """
    ratio = beta1**2 / beta2 if beta2 else math.inf
    if ratio >= 1:
        return LARGEST_DIRECTION
    corrections = (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    largest = (1 - beta1) * ((1 - ratio**t) / ((1 - ratio) * (1 - beta2))) ** 0.5
    return min(1.001 * corrections * largest, LARGEST_DIRECTION)


def gain_of(beta1: float, t: int) -> float:
    """How much further entries go that agree, in step t in the bases: nothing is known after the first."""
    return GAIN * (1 - beta1 ** (t - 1))


def further(u: Any, square: Any, gain: Any) -> Any:
    """An entry u of the direction, which goes further if gradients agree from step to step.

    It becomes (1 + gain · min(|u|, 1)⁸) u. |u| is 1 where all gradients agree, and about 0.23 where they are noise
    (β₁ = 0.9). In Adam's own basis many entries move along a direction in which gradients agree, here only one does.

    Args:
        u: the entry.
        square: min(u², 1), by the function that each caller has for it.
        gain: of `gain_of`.
    """
    fourth = square * square
    return u * (1 + gain * (fourth * fourth))
