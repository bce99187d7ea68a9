"""Rotations for a covariance S, and the variances D = diag(QᵀSQ) along them.

They are chosen on S + a·s, with s the mean variance. The ridge a is there for nearly constant columns: two of them that
were once non-zero together would look perfectly correlated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import TARGETS, conjugate, layered, rotate_rows
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.operators import Rotation
from swallowtail.wiring import Butterfly, Wiring

THRESHOLD = 0.1  # of a layer's largest weight: pairs below it wait for a later layer
LEAST_WEIGHT = 1e-12  # squared correlation that is rounding
LEAST = 1e-10  # a variance is at least this fraction of its own column's: finite densities on singular data
ALONE = 0.01  # a column whose squared correlations with all others add up to less is left out of the search
ROUNDING = 1e-13  # of the mean variance: correlations between what is left below it are noise


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
    pairs, angles = grow_in_place(A, n_rotations, s, target)
    if polish and len(angles):
        angles, _ = Objective(start, target).polish(pairs, angles, polish, 1e-5)
    return pairs, angles


def variances_along(S: np.ndarray, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n,)
    """diag(QᵀSQ), at least `least_variances`. From S itself: a ridge would drown a variance of 1e-20 of it."""
    return np.maximum(np.diagonal(conjugate(S, pairs, angles)), least_variances(np.diagonal(S)))


def fit_covariance(
    S: np.ndarray, ridge: float, n_rotations: int, target: str, wiring: str | Wiring, polish: int, seed: int
) -> tuple[Rotation, np.ndarray]:
    """Q and D (n,), float64, for the covariance S; ``wiring`` as in `GivensCovariance`, all else as in `grow`."""
    s = mean_variance(S)
    if wiring == "pairs":
        pairs, angles = grow(S, ridge, n_rotations, target, polish)
        return rotation_of(len(S), pairs, angles), variances_along(S, pairs, angles)
    fixed = wiring if isinstance(wiring, Butterfly) else Butterfly(len(S))
    fit = fit_butterfly(
        S + ridge * s * np.eye(len(S)),
        fixed.depth,
        reverse=fixed.reverse,
        target=target,
        starts=1,
        kicks=0,
        seed=seed,
    )
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    d = np.maximum(fit.eigenvalues - ridge * s, least_variances(np.diagonal(S)))
    return rotation, d


def rotation_of(n: int, pairs: np.ndarray, angles: np.ndarray) -> Rotation:
    """A sequence of rotations as one operator, float64."""
    wiring, ordered = layered(n, pairs, angles)
    return Rotation(wiring, torch.from_numpy(ordered))


def grow_in_place(A: np.ndarray, count: int, s: float, target: str) -> tuple[Any, Any]:
    """Parallel Jacobi on A in place. With s divided out, squares of entries near 1e±200 stay in range."""
    A /= s
    found = _grow_among(A, count, target) if target == "likelihood" else None
    if found is None:
        found = parallel_jacobi(A, max(0, count), THRESHOLD, TARGETS[target], ROUNDING, LEAST_WEIGHT, 0)
    A *= s
    return found


def _grow_among(A: np.ndarray, count: int, target: str) -> tuple[Any, Any] | None:
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
