"""Variances along chosen axes, corrected for having been chosen: what held-out rows say about them.

Rotations are chosen where they make variances differ most, so the sample's own variances d along Q are too extreme.
Rows that took no part show by how much: every axis of every fold gives a pair (d, mean z² of held-out rows).
A `Level` is a rule d ↦ variance learned from such pairs, in units of the mean variance s:

| rule | d ↦ | good for |
|---|---|---|
| "analytic" | (1 − δ) d + δ with the δ of OAS (Chen et al., 2010) | very few rows: nothing to learn |
| "linear" | the same, δ by held-out density | few rows: one number to learn |
| "monotone" | the best non-decreasing function (isotonic regression) | spectra of any form |
| "both" | the geometric mean of the two | between |

A direction in which nothing was seen may still hold something. What it may hold (`unseen`) is added to the held-out
squares, and is the least that a rule may answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

RULES = ("analytic", "monotone", "linear", "both")
INTENSITIES = np.concatenate([[0.0], np.logspace(-5, 0, 21)])  # δ
LEAST = 1e-10  # a variance is at least this fraction of its own column's: finite densities on singular data
# What may have been missed along every axis, as if so many of the N rows had been drawn from the columns' scales alone:
# next to nothing. With 0.25, columns that nearly follow from others lost 1 to 2 nats per dimension.
UNSEEN = 1e-6
UNSEEN_TIED = 4.0  # the same of columns that mostly repeat one value, where the scale is a guess
MOSTLY = 0.5  # a column with a larger share of one value does not tell its own scale
# unless so many rows have another value, or so many have one and the same. Two equal values were not enough: on 1000
# digits they took the lowest score from −410 to −1074.
TELLING, SAME = 12, 5
IN_BIN, WIDTH = 3, 0.3  # of the monotone rule's bins, see `_bins`


class Axes(NamedTuple):
    """Variances along the axes of one fold, all in units of its mean variance."""

    own: np.ndarray  # d, of the rows the axes were chosen from, shape: (n,)
    held_out: np.ndarray  # mean z² of held-out rows, shape: (n,)
    rows: int  # held out
    floor: np.ndarray  # shape: (n,)
    intensity: float  # the analytic δ of that fold
    pairs: np.ndarray  # of the rotations, shape: (K, 2)
    angles: np.ndarray  # shape: (K,)


class Level(NamedTuple):
    """A rule d ↦ variance, in units of the mean variance. Between its points it is linear in log d."""

    log_own: np.ndarray  # increasing
    variances: np.ndarray  # non-decreasing; empty: linear alone
    intensity: float  # δ; −1: monotone alone

    def __call__(self, own: np.ndarray, floor: np.ndarray) -> np.ndarray:
        """Variances for d = own (n,), at least ``floor``."""
        linear = (1 - self.intensity) * own + self.intensity
        if not len(self.variances):
            return np.maximum(linear, floor)
        log_own = np.log(np.maximum(own, 1e-300))
        # Beyond the last point the ratio stays, so that one huge variance is not cut down to the next.
        ratio = np.exp(np.maximum(log_own - self.log_own[-1], 0.0))
        monotone = np.interp(log_own, self.log_own, self.variances) * ratio
        if self.intensity < 0:
            return np.maximum(monotone, floor)
        return np.maximum(np.sqrt(linear * np.maximum(monotone, floor)), floor)


def learn(axes: Sequence[Axes], rule: str) -> Level:
    """The rule of this name that suits the axes of all folds best."""
    if rule == "analytic":
        return Level(np.zeros(0), np.zeros(0), float(np.mean([a.intensity for a in axes])))
    delta = -1.0 if rule == "monotone" else _intensity(axes)
    if rule == "linear":
        return Level(np.zeros(0), np.zeros(0), delta)
    own = np.concatenate([a.own for a in axes])
    order = np.argsort(own, kind="stable")
    logs = np.log(np.maximum(own[order], 1e-300))
    starts = _bins(logs)
    weights = np.diff(np.append(starts, len(logs)))
    mean = lambda values: np.add.reduceat(values, starts) / weights
    found = isotonic_regression(mean(np.concatenate([a.held_out for a in axes])[order]), weights=weights)
    return Level(mean(logs), found.x, delta)


def _bins(logs: np.ndarray) -> np.ndarray:
    """Where bins of sorted log d begin: `IN_BIN` axes or more, and no narrower than `WIDTH`.

    Axes with nearly the same d belong together. If one of a hundred dead pixels lights up in a held-out row, that is
    news of all of them, not of those alone that happen to come after it in the order.
    """
    starts, last = [0], 0
    for place in range(1, len(logs) - IN_BIN + 1):
        if place - last >= IN_BIN and logs[place] - logs[last] > WIDTH:
            starts.append(place)
            last = place
    return np.array(starts)


def _intensity(axes: Sequence[Axes]) -> float:
    delta, total = INTENSITIES[:, None], np.zeros(len(INTENSITIES))
    for a in axes:
        total += a.rows * loss(a.held_out, np.maximum((1 - delta) * a.own + delta, a.floor))
    return float(INTENSITIES[int(np.argmin(total))])


def loss(squares: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Mean negative log-density without constants, ½ Σ (z²/v + log v) over the last axis."""
    return 0.5 * (squares / variances + np.log(variances)).sum(-1)


def cross_validated(axes: Sequence[Axes], rule: str) -> np.ndarray:  # shape: (folds,)
    """Loss per row of every fold, under the rule learned from the others."""
    losses = []
    for index, fold in enumerate(axes):
        losses.append(float(loss(fold.held_out, learn(others(axes, index), rule)(fold.own, fold.floor))))
    return np.array(losses)


def others(axes: Sequence[Axes], index: int) -> list[Axes]:
    """Those of all folds but one; of all, if that is the only one."""
    return [a for i, a in enumerate(axes) if i != index] or list(axes)


def analytic_intensity(S: np.ndarray, n_samples: float) -> float:
    """δ of the oracle approximating shrinkage estimator, for N Gaussian rows with covariance S."""
    n, s = len(S), float(np.trace(S)) / len(S)
    squares = float(np.vdot(S, S)) / n**2
    least = (n_samples + 1) * (squares - s * s / n)
    return 1.0 if least <= 0 else min(1.0, (squares + s * s) / least)


def unseen(variances: np.ndarray, rows: np.ndarray, n_samples: float) -> np.ndarray:  # shape: (n,)
    """The variance of every column that N rows may have missed along any axis.

    It is a tiny part of the column's own variance. Where a column mostly repeats one value, it is in proportion to the
    largest square that may be expected: a pixel that was dark in every row may be bright in the next, and its own
    variance, 0, says nothing of how bright. The mean variance is the most. That suits pixels, but for a column of zeros
    and ones among columns in other units it may be a million times too much.

    Args:
        variances: of the columns, shape (n,).
        rows: some rows of the data, shape (m, n).
        n_samples: N.
    """
    usual, repeats = float(variances.mean()) or 1.0, repeated(rows) | (variances <= 0)
    share = np.where(repeats, np.minimum(UNSEEN_TIED / n_samples, 1.0), np.maximum(UNSEEN / n_samples, LEAST))
    scale = variances.copy()
    scale[repeats] = np.minimum(_largest_squares(rows[:, repeats]), usual)
    return np.asarray(share * scale)


def _largest_squares(rows: np.ndarray) -> np.ndarray:  # shape: (n,)
    """How far columns of rows (m, n) that mostly repeat one value may go from it, squared; ∞ where nothing tells.

    A column of zeros and ones tells by itself, if enough of its rows do. Of the others, any may go as far as the one
    that goes farthest.
    """
    if not rows.size:
        return np.full(rows.shape[1], np.inf)
    squares = (rows - np.median(rows, axis=0)) ** 2
    own, others = squares.max(0), (squares > 0).sum(0)
    one_value = (squares == own).sum(0) == others
    tells = (others >= TELLING) | (one_value & (others >= SAME))
    return np.where(tells, own, own.max() or np.inf)


def repeated(rows: np.ndarray) -> np.ndarray:  # shape: (n,)
    """Which columns of rows (m, n) mostly repeat one value, so that they do not tell their own scale."""
    if not len(rows):
        return np.zeros(rows.shape[1], bool)
    return (rows == np.median(rows, axis=0)).mean(0) > MOSTLY
