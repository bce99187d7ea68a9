"""A covariance written as Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ: rotations, variances along them, rank-one terms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import conjugate, rotate_rows
from swallowtail.gaussians.regularise.rotations import grow

# Rank-one terms are kept in the order of their gain in log-density, until all others together gain less than this,
NEGLIGIBLE = 1e-3  # nats per dimension,
# or there are so many times n: with twice as many, a row would cost as much as with a dense matrix. `FEW` are always
# allowed: rotations alone come slowly near a covariance of columns in different units that determine each other.
MOST_TERMS, FEW = 0.25, 16
ROUNDING = (
    1e-30  # entries of eigenvectors below it are 0: their squares are subnormal, and products of those slow
)


class CovarianceFactors(NamedTuple):
    """Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ."""

    pairs: np.ndarray  # (K, 2)
    angles: np.ndarray  # (K,)
    variances: np.ndarray  # D, shape: (n,)
    basis: np.ndarray  # V, shape: (n, r)
    weights: np.ndarray  # w > −1, shape: (r,)


def factorise(
    covariance: np.ndarray, unseen: np.ndarray, budget: int, target: str, polish: int, terms: bool
) -> CovarianceFactors:
    """A covariance as rotations, variances along them, and rank-one terms for what they leave."""
    n = len(covariance)
    pairs, angles = grow(covariance, 0.0, budget, target, polish)
    R = conjugate(covariance, pairs, angles)
    d = np.maximum(np.diagonal(R), along(pairs, angles, unseen))
    if not terms:
        return CovarianceFactors(pairs, angles, d, np.zeros((n, 0)), np.zeros(0))
    roots = np.sqrt(d)
    W = R / np.outer(roots, roots)
    np.fill_diagonal(W, 1.0)
    values, V = np.linalg.eigh(W)
    V[np.abs(V) < ROUNDING] = 0.0
    weights = np.maximum(values, 1e-12) - 1
    gain = 0.5 * (weights - np.log1p(weights))
    order = np.argsort(-gain)
    needed = int(np.searchsorted(-np.cumsum(gain[order][::-1])[::-1], -NEGLIGIBLE * n))
    kept = order[: min(needed, max(int(MOST_TERMS * n), FEW))]
    return CovarianceFactors(pairs, angles, d, np.ascontiguousarray(V[:, kept]), weights[kept])


def along(pairs: np.ndarray, angles: np.ndarray, diagonal: np.ndarray) -> np.ndarray:  # shape: (n,)
    """diag(QᵀCQ) for C = diag(diagonal)."""
    rows = np.diag(np.sqrt(diagonal))
    rotate_rows(rows, pairs, np.cos(angles), np.sin(angles), True)
    return (rows * rows).sum(1)
