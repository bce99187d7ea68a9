"""How much noise a mixture's covariances get: Σ ≈ Q (D + b·s) Qᵀ, chosen on held-out rows.

s is the mean variance, and rotations.py says how Q and D are found. `choose_noise` picks the ridge a, the number of
rotations K and the noise b with the best log-density on held-out rows. That is cheap. Rotations are added greedily, so
one run tries all smaller K as well. And the held-out log-density of one Gaussian needs only the held-out second moments
in the basis Q.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import rotate_rows
from swallowtail.gaussians.regularise.rotations import (
    Fold,
    grow_in_place,
    least_variances,
    mean_variance,
)

# a; from 0.015 to 0.15 the held-out MNIST mixture changes by 0.005 bits per pixel.
RIDGES = (0.0, 0.003, 0.03)
NOISES = np.concatenate([[0.0], np.logspace(-8, 0, 25)])  # b
PREFIXES = (0.0, 0.125, 0.25, 0.5, 1.0)  # of the rotations asked for


class NoisePlan(NamedTuple):
    """How the covariances of a mixture are regularised; a and b are fractions of the mean variance s."""

    ridge: float  # a
    n_rotations: int  # K, at most
    noise: float  # b
    background: float = 0.0  # the share of a mixture that belongs to none of its components
    missed: float = 0.0  # what columns that mostly repeat one value may hold at least, as a fraction of s


def choose_noise(folds: Iterable[Fold], budget: int, target: str, every_fold: bool = True) -> NoisePlan:
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
    return NoisePlan(float(ridges[a]), counts[k], float(NOISES[b]))


def _losses(fold: Fold, ridge: float, counts: list[int], target: str) -> np.ndarray:
    """Mean negative log-density of the held-out rows without constants, shape (counts, noises)."""
    S, s = fold.covariance, mean_variance(fold.covariance)
    A, Z = S.copy(), np.ascontiguousarray(fold.held_out.T, dtype=np.float64)
    A[np.diag_indices(len(A))] += ridge * s
    least, used, out = least_variances(np.diagonal(S)), 0, np.empty((len(counts), len(NOISES)))
    for row, count in enumerate(counts):
        pairs, angles = grow_in_place(A, count - used, s, target)
        rotate_rows(Z, pairs, np.cos(angles), np.sin(angles), True)
        used += len(angles)
        d = np.maximum(np.diagonal(A) - ridge * s, least) + NOISES[:, None] * s
        out[row] = 0.5 * ((Z * Z).mean(1) / d + np.log(d)).sum(1)
    return out
