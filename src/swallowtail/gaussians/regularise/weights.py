"""A weighted sum of precision matrices: which shares of several models describe rows best that none of them has seen.

P = Σ_c w_c P_c with w ≥ 0. The mean negative log-density of rows with second moments H, ½ tr PH − ½ log det P, is
convex in w. So the best weights are found by Newton's method, and there are too few of them to overfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

STEPS = 30  # of Newton's method; it takes 5 to 10
SETTLED = 1e-5  # nats per dimension
HALVINGS = 20
ROUNDING = 1e-10  # added to the curvature, where two members are the same


class FoldModels(NamedTuple):
    """What one fold tells: precision matrices (n, n) of its members, and second moments (n, n) of held-out rows."""

    members: Sequence[np.ndarray]
    moments: np.ndarray
    usual: np.ndarray  # the covariance by plain shrinkage, shape: (n, n)
    rows: np.ndarray  # held out, shape: (m, n)


class Blend(NamedTuple):
    """Weights of the members, and the loss that they reach, in nats per dimension and without constants."""

    weights: np.ndarray
    loss: float


def best_blend(folds: Sequence[FoldModels]) -> Blend:
    """The weights w ≥ 0 with the least mean loss over all folds."""
    n, count = len(folds[0].moments), len(folds[0].members)
    expected = np.mean([[np.vdot(P, fold.moments) for P in fold.members] for fold in folds], axis=0)
    w = np.full(count, n / expected.sum())
    loss, gradient, curvature = _terms(folds, expected, w)
    for _ in range(STEPS):
        # The best v ≥ 0 of the quadratic model: ½ vᵀAv − (Aw − g)ᵀv = ½ ‖Rv − R⁻ᵀ(Aw − g)‖² with A = RᵀR.
        scale = np.sqrt(np.diagonal(curvature))
        A = curvature / np.outer(scale, scale) + ROUNDING * np.eye(count)
        R = cholesky(A)
        right = solve_triangular(R, A @ (scale * w) - gradient / scale, trans=1)
        step, before = nnls(R, right)[0] / scale - w, loss
        for halving in range(HALVINGS):
            tried = w + step * 0.5**halving
            if tried.any():
                loss, new_gradient, new_curvature = _terms(folds, expected, tried)
                if loss < before:
                    w, gradient, curvature = tried, new_gradient, new_curvature
                    break
        if not loss < before - SETTLED * n:
            break
    return Blend(w, min(loss, before) / n)


def best_single(folds: Sequence[FoldModels], member: int) -> Blend:
    """The best weight of one member alone."""
    n, weights = len(folds[0].moments), np.zeros(len(folds[0].members))
    expected = float(np.mean([np.vdot(fold.members[member], fold.moments) for fold in folds]))
    weights[member] = n / expected
    logdet = np.mean([log_determinant(fold.members[member]) for fold in folds])
    return Blend(weights, float(0.5 * (n - n * np.log(weights[member]) - logdet)) / n)


def inverse(A: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """A⁻¹ of a positive matrix, by Cholesky, rows and columns scaled so that the diagonal is 1."""
    scale = 1 / np.sqrt(np.diagonal(A))
    L = cholesky(A * np.outer(scale, scale), lower=True)
    half = solve_triangular(L, np.diag(scale), lower=True)
    return half.T @ half


def log_determinant(A: np.ndarray) -> float:
    """Of a positive matrix."""
    diagonal = np.diagonal(A)
    scale = 1 / np.sqrt(diagonal)
    L = cholesky(A * np.outer(scale, scale), lower=True)
    return float(2 * np.log(np.diagonal(L)).sum() + np.log(diagonal).sum())


def _terms(
    folds: Sequence[FoldModels], expected: np.ndarray, w: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean loss, its gradient ½ (tr P_c H − tr P⁻¹P_c) and curvature ½ tr P⁻¹P_c P⁻¹P_d."""
    loss, traces, curvature = 0.5 * float(w @ expected), np.zeros(len(w)), np.zeros((len(w), len(w)))
    for fold in folds:
        P = sum(share * member for share, member in zip(w, fold.members, strict=True))
        scale = 1 / np.sqrt(np.diagonal(P))
        both = np.outer(scale, scale)
        L = cholesky(P * both, lower=True)
        # L⁻¹ P_c L⁻ᵀ
        whitened = []
        for member in fold.members:
            half = solve_triangular(L, member * both, lower=True)
            whitened.append(solve_triangular(L, half.T, lower=True).ravel())
        B = np.stack(whitened)
        loss -= (np.log(np.diagonal(L)).sum() - np.log(scale).sum()) / len(folds)
        traces += B[:, :: len(P) + 1].sum(1) / len(folds)
        curvature += B @ B.T / len(folds)
    return loss, 0.5 * (expected - traces), 0.5 * curvature
