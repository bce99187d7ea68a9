"""Strong Wolfe line search: Nocedal & Wright, algorithms 3.5 and 3.6, with cubic interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

# While φ still falls, the next trial lies further by at least this share of the last interval, and at most so many
# times as far: one poor cubic cannot throw the search away.
LEAST_GROWTH, MOST_GROWTH = 0.01, 10
MARGIN = 0.1  # of an interval: trials keep this distance from both ends, so that it shrinks
NARROWEST = 1e-16  # relative width of an interval that float64 cannot divide


class Trial(NamedTuple):
    """φ(t) = f(x + t d), its slope there, and the point and gradient themselves."""

    t: float
    f: float
    slope: float
    x: Tensor
    gradient: Tensor


def strong_wolfe(
    phi: Callable[[float], Trial],
    start: Trial,
    t: float,
    *,
    c1: float = 1e-4,
    c2: float = 0.9,
    max_evaluations: int = 25,
) -> tuple[Trial | None, int]:
    """Find t with φ(t) ≤ φ(0) + c₁ t φ′(0) and |φ′(t)| ≤ c₂ |φ′(0)|.

    A trial that is not finite counts as too long, so that overflow only costs some halvings.

    Args:
        phi: evaluates a trial.
        start: φ at t = 0, with a negative slope.
        t: the first step length to try.
        c1, c2: of the two conditions.
        max_evaluations: after this many, stop with the best point that satisfies the first condition.

    Returns:
        The trial found, or None if none decreased φ enough; and the number of evaluations.
    """
    search = _Search(phi, start, c1, c2, max_evaluations)
    low = start
    while search.evaluations_left():
        trial = search.evaluate(t)
        if search.too_high(trial) or (low.t > 0 and trial.f >= low.f):
            return search.zoom(low, trial), search.count
        if search.flat(trial):
            return trial, search.count
        if trial.slope >= 0:
            return search.zoom(trial, low), search.count
        # Still descending: the cubic through both ends says how far to go on.
        least = trial.t + LEAST_GROWTH * (trial.t - low.t)
        t = _cubic_minimum(low, trial, least, MOST_GROWTH * trial.t, default=2 * trial.t)
        low = trial
    return (low if low.t > 0 else None), search.count


class _Search:
    """The conditions, the count of evaluations, and the second phase."""

    def __init__(self, phi: Callable[[float], Trial], start: Trial, c1: float, c2: float, limit: int) -> None:
        self.phi, self.start, self.c1, self.c2, self.limit = phi, start, c1, c2, limit
        self.count = 0

    def evaluations_left(self) -> bool:
        return self.count < self.limit

    def evaluate(self, t: float) -> Trial:
        self.count += 1
        trial = self.phi(t)
        finite = math.isfinite(trial.f) and math.isfinite(trial.slope)
        return trial if finite else trial._replace(f=math.inf, slope=math.nan)

    def too_high(self, trial: Trial) -> bool:
        return trial.f > self.start.f + self.c1 * trial.t * self.start.slope

    def flat(self, trial: Trial) -> bool:
        return abs(trial.slope) <= -self.c2 * self.start.slope

    def zoom(self, low: Trial, high: Trial) -> Trial | None:
        """Narrow an interval that holds a t as wanted; ``low`` is the best point known to have decreased enough."""
        was_near = False
        while self.evaluations_left():
            width = abs(high.t - low.t)
            if width <= NARROWEST * max(low.t, high.t):
                break
            left, right = min(low.t, high.t), max(low.t, high.t)
            t = _cubic_minimum(low, high, left, right, default=0.5 * (left + right))
            margin = MARGIN * width
            near = min(t - left, right - t) < margin
            if near and was_near:  # twice running: the cubic is a poor model here, so bisect
                t = 0.5 * (left + right)
            was_near = near
            trial = self.evaluate(min(max(t, left + margin), right - margin))
            if self.too_high(trial) or trial.f >= low.f:
                high = trial
            else:
                if self.flat(trial):
                    return trial
                if trial.slope * (high.t - low.t) >= 0:
                    high = low
                low = trial
        return low if low.t > 0 else None


def _cubic_minimum(a: Trial, b: Trial, lowest: float, highest: float, default: float) -> float:
    """Where the cubic through both values and slopes is least, clipped; ``default`` where there is no such point."""
    if not (math.isfinite(a.f) and math.isfinite(b.f)) or a.t == b.t:
        return default
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return default
    d2 = math.copysign(math.sqrt(square), b.t - a.t)
    denominator = b.slope - a.slope + 2 * d2
    if denominator == 0:
        return default
    t = b.t - (b.t - a.t) * (b.slope + d2 - d1) / denominator
    return min(max(t, lowest), highest) if math.isfinite(t) else default
