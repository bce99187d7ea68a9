"""Which rotations, how many, and how much noise: Σ ≈ Q (D + b·s) Qᵀ, chosen on held-out rows.

S is the sample covariance and s its mean variance. Rotations are chosen on S + a·s, and D = diag(QᵀSQ). The ridge a is
there for nearly constant columns: two of them that were once non-zero together would look perfectly correlated.

`choose` picks the ridge a, the number of rotations K and the noise b with the best log-density on held-out rows. That
is cheap. Rotations are added greedily, so one run tries all smaller K as well. And the held-out log-density of one
Gaussian needs only the held-out second moments in the basis Q.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import TARGETS, conjugate, layered, rotate_rows
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.operators import Rotation
from swallowtail.wiring import Butterfly, Wiring

# a; from 0.015 to 0.15 the held-out MNIST mixture changes by 0.005 bits per pixel.
RIDGES = (0.0, 0.003, 0.03)
NOISES = np.concatenate([[0.0], np.logspace(-8, 0, 25)])  # b
PREFIXES = (0.0, 0.125, 0.25, 0.5, 1.0)  # of the rotations asked for
THRESHOLD = 0.1  # of a layer's largest weight: pairs below it wait for a later layer
LEAST_WEIGHT = 1e-12  # squared correlation that is rounding
LEAST = 1e-10  # a variance is at least this fraction of its own column's: finite densities on singular data
ALONE = 0.01  # a column whose squared correlations with all others add up to less is left out of the search
ROUNDING = 1e-13  # of the mean variance: correlations between what is left below it are noise


class Plan(NamedTuple):
    """How a covariance is regularised; a and b are fractions of the mean variance s."""

    ridge: float  # a
    n_rotations: int  # K, at most
    noise: float  # b
    background: float = 0.0  # the share of a mixture that belongs to none of its components
    missed: float = 0.0  # what columns that mostly repeat one value may hold at least, as a fraction of s


class Fold(NamedTuple):
    """A covariance, and rows it has not seen."""

    covariance: np.ndarray  # S, shape: (n, n)
    held_out: np.ndarray  # rows minus the mean that belongs to S, shape: (m, n)


def mean_variance(S: np.ndarray) -> float:
    """s = tr S / n; 1 where everything is constant, so that noise has a scale."""
    s = float(np.trace(S)) / len(S)
    return s if s > 0 else 1.0


def least_variances(variances: np.ndarray) -> np.ndarray:  # shape: (n,)
    """What an eigenvalue may not fall below, from the columns' own variances.

    Jacobi angles are within ±45°, so eigenvalue i belongs to column i more than to any other. A constant column
    takes the median of the others', or 1.
    """
    positive = variances[variances > 0]
    usual = float(np.median(positive)) if len(positive) else 1.0
    return LEAST * np.where(variances > 0, variances, usual)


def choose(folds: Iterable[Fold], budget: int, target: str, every_fold: bool = True) -> Plan:
    """The plan with the best mean held-out log-density over all folds.

    For S + a·s grown to K rotations, d = diag(QᵀSQ) and z² the held-out second moments along Q's columns, it is
    −½ Σᵢ [z²ᵢ/(dᵢ + b·s) + log(dᵢ + b·s)].

    Args:
        folds: (S, held-out rows); all with the same n.
        budget: the largest K.
        target: "likelihood" or "matrix".
        every_fold: whether all folds try every a and K; otherwise the first one chooses those, and all b.
    """
    counts = sorted({round(share * budget) for share in PREFIXES})
    ridges = np.array(RIDGES)
    losses = np.zeros((len(ridges), len(counts), len(NOISES)))
    for fold in folds:
        losses += len(fold.held_out) * np.stack([_losses(fold, a, counts, target) for a in ridges])
        if len(ridges) > 1 and not every_fold:
            a, k, _ = np.unravel_index(np.argmin(losses), losses.shape)
            ridges, counts, losses = ridges[a : a + 1], [counts[k]], losses[a : a + 1, k : k + 1]
    a, k, b = np.unravel_index(np.argmin(losses), losses.shape)
    return Plan(float(ridges[a]), counts[k], float(NOISES[b]))


def _losses(fold: Fold, ridge: float, counts: list[int], target: str) -> np.ndarray:
    """Mean negative log-density of the held-out rows without constants, shape (counts, noises)."""
    S, s = fold.covariance, mean_variance(fold.covariance)
    A, Z = S.copy(), np.ascontiguousarray(fold.held_out.T, dtype=np.float64)
    A[np.diag_indices(len(A))] += ridge * s
    least, used, out = least_variances(np.diagonal(S)), 0, np.empty((len(counts), len(NOISES)))
    for row, count in enumerate(counts):
        pairs, angles = _jacobi(A, count - used, s, target)
        rotate_rows(Z, pairs, np.cos(angles), np.sin(angles), True)
        used += len(angles)
        d = np.maximum(np.diagonal(A) - ridge * s, least) + NOISES[:, None] * s
        out[row] = 0.5 * ((Z * Z).mean(1) / d + np.log(d)).sum(1)
    return out


def grow(
    S: np.ndarray, ridge: float, n_rotations: int, target: str, polish: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rotations for S + a·s: pairs (K, 2) and angles (K,), Q₁ first.

    Args:
        S: covariance, shape (n, n).
        ridge: a.
        n_rotations: at most this many; fewer where nothing is left to rotate.
        target: "likelihood" or "matrix".
        polish: L-BFGS iterations on all angles afterwards.
    """
    A, s = S.copy(), mean_variance(S)
    A[np.diag_indices(len(A))] += ridge * s
    start = A.copy() if polish else A
    pairs, angles = _jacobi(A, n_rotations, s, target)
    if polish and len(angles):
        angles, _ = Objective(start, target).polish(pairs, angles, polish, 1e-5)
    return pairs, angles


def variances_along(S: np.ndarray, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n,)
    """diag(QᵀSQ), at least `least_variances`. From S itself: a ridge would drown a variance of 1e-20 of it."""
    return np.maximum(np.diagonal(conjugate(S, pairs, angles)), least_variances(np.diagonal(S)))


def fit_covariance(
    S: np.ndarray, plan: Plan, target: str, wiring: str | Wiring, polish: int, seed: int
) -> tuple[Rotation, np.ndarray]:
    """Q and D + b·s (n,), float64, for the covariance S under a plan; ``wiring`` as in `GivensCovariance`."""
    s = mean_variance(S)
    if wiring == "pairs":
        pairs, angles = grow(S, plan.ridge, plan.n_rotations, target, polish)
        return rotation_of(len(S), pairs, angles), variances_along(S, pairs, angles) + plan.noise * s
    fixed = wiring if isinstance(wiring, Butterfly) else Butterfly(len(S))
    fit = fit_butterfly(
        S + plan.ridge * s * np.eye(len(S)),
        fixed.depth,
        reverse=fixed.reverse,
        target=target,
        starts=1,
        kicks=0,
        seed=seed,
    )
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    d = np.maximum(fit.eigenvalues - plan.ridge * s, least_variances(np.diagonal(S)))
    return rotation, d + plan.noise * s


def rotation_of(n: int, pairs: np.ndarray, angles: np.ndarray) -> Rotation:
    """A sequence of rotations as one operator, float64."""
    wiring, ordered = layered(n, pairs, angles)
    return Rotation(wiring, torch.from_numpy(ordered))


def _jacobi(A: np.ndarray, count: int, s: float, target: str) -> tuple[Any, Any]:
    """Parallel Jacobi on A in place. With s divided out, squares of entries near 1e±200 stay in range."""
    A /= s
    found = _jacobi_among(A, count, target) if target == "likelihood" else None
    if found is None:
        found = parallel_jacobi(A, max(0, count), THRESHOLD, TARGETS[target], ROUNDING, LEAST_WEIGHT, 0)
    A *= s
    return found


def _jacobi_among(A: np.ndarray, count: int, target: str) -> tuple[Any, Any] | None:
    """The same without columns that hardly correlate with any other; None where that saves nothing or proves wrong.

    A third of MNIST's pixels are like that, and without them the search takes half the time. A column that was left out
    can start to matter once others are rotated. This is checked at the end.
    """
    n, d = len(A), np.maximum(np.diagonal(A), ROUNDING)
    active = (A * A) @ (1 / d) / d - 1 > ALONE
    inside, outside = np.nonzero(active)[0], np.nonzero(~active)[0]
    if not 2 <= len(inside) <= 0.8 * n:
        return None
    inner, cross = A[np.ix_(inside, inside)], A[np.ix_(inside, outside)]
    pairs, angles = parallel_jacobi(
        inner, max(0, count), THRESHOLD, TARGETS[target], ROUNDING, LEAST_WEIGHT, 0
    )
    rotate_rows(cross, pairs, np.cos(angles), np.sin(angles), True)
    inverse = 1 / np.maximum(np.diagonal(inner), ROUNDING)
    left_out = np.max(cross * cross * inverse[:, None] / d[outside], initial=0.0)
    left = inner * inner * np.outer(inverse, inverse)
    np.fill_diagonal(left, 0.0)
    if left_out > max(left.max(initial=0.0), LEAST_WEIGHT):
        return None
    A[np.ix_(inside, inside)], A[np.ix_(inside, outside)] = inner, cross
    A[np.ix_(outside, inside)] = cross.T
    return inside[pairs], angles
