"""The rivals of the mixture comparison: plain EM with other covariances, and how every setting is tuned.

All contenders, ours among them, begin with the same k-means clusters, stop when the mean log-density gains less than
`TOLERANCE` (or after `STEPS`), and have their settings chosen on the last quarter of the training rows, after at most
`TUNING_STEPS` steps on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from tqdm import tqdm

N, K = 784, 10
TOLERANCE, STEPS = 1e-3, 100  # GaussianMixture's and GivensMixture's defaults
TUNING_STEPS = 15
Density = Callable[[np.ndarray], np.ndarray]  # rows minus the mean → log-densities
Estimate = Callable[[np.ndarray], tuple[Density, int]]  # a covariance → its log-density, floats


def bits(log_density: np.ndarray) -> float:
    """Bits per pixel of (x + u)/256 from natural log-densities of rows."""
    return float(8 - np.mean(log_density) / (N * np.log(2)))


def clusters(X: np.ndarray) -> np.ndarray:
    """The start of all: what GaussianMixture(random_state=0) and GivensMixture(random_state=0) make of X."""
    return KMeans(K, n_init=1, random_state=np.random.RandomState(0)).fit(X).labels_


class Rival:
    """A mixture by plain EM, the covariance of each component given by ``estimate``."""

    def __init__(self, estimate: Estimate, steps: int) -> None:
        self.estimate, self.max_iter = estimate, steps

    def fit(self, X: np.ndarray) -> Rival:
        resp, before = np.eye(K, dtype=X.dtype)[clusters(X)], -np.inf
        for step in range(1, self.max_iter + 1):
            self.n_iter_ = step
            self._maximise(X, resp)
            logs = self._logs(X)
            total = logsumexp(logs, axis=1)
            if abs(total.mean() - before) < TOLERANCE:
                break
            before, resp = total.mean(), np.exp(logs - total[:, None]).astype(X.dtype)
        return self

    def _maximise(self, X: np.ndarray, resp: np.ndarray) -> None:
        counts = resp.sum(0) + 1e-9
        self.weights, self.means, self.densities, self.floats = counts / counts.sum(), [], [], K - 1
        for k in range(K):
            kept = resp[:, k] > 1e-10
            r = resp[kept, k]
            self.means.append((r @ X[kept] / counts[k]).astype(X.dtype))
            x = (X[kept] - self.means[k]) * np.sqrt(r[:, None])
            density, floats = self.estimate((x.T @ x / counts[k]).astype(np.float64))
            self.densities.append(density)
            self.floats += floats + N

    def _logs(self, X: np.ndarray) -> np.ndarray:
        columns = [f(X - mean) for f, mean in zip(self.densities, self.means, strict=True)]
        return np.stack(columns, axis=1) + np.log(self.weights)

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return logsumexp(self._logs(X), axis=1)


def dense_density(S: np.ndarray) -> tuple[Density, int]:
    L = np.linalg.cholesky(S)
    constant = np.log(np.diagonal(L)).sum() + 0.5 * N * np.log(2 * np.pi)

    def density(x: np.ndarray) -> np.ndarray:
        return -0.5 * (solve_triangular(L, x.T, lower=True) ** 2).sum(0) - constant

    return density, N * (N + 1) // 2


def low_rank_density(W: np.ndarray, psi: np.ndarray, floats: int) -> tuple[Density, int]:
    """N(0, W Wᵀ + diag ψ) by Woodbury."""
    scaled = W / psi[:, None]
    L = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ scaled)
    constant = np.log(np.diagonal(L)).sum() + 0.5 * np.log(psi).sum() + 0.5 * N * np.log(2 * np.pi)

    def density(x: np.ndarray) -> np.ndarray:
        inner = solve_triangular(L, (x @ scaled).T, lower=True)
        return -0.5 * ((x * x) @ (1 / psi) - (inner**2).sum(0)) - constant

    return density, floats


def shrunk(alpha: float) -> Estimate:
    """(1 − α) S + α tr S/n."""
    return lambda S: dense_density((1 - alpha) * S + alpha * np.trace(S) / N * np.eye(N))


def ppca(rank: int, floor: float) -> Estimate:
    """Probabilistic PCA in closed form; ``floor`` is added to its noise."""

    def estimate(S: np.ndarray) -> tuple[Density, int]:
        values, vectors = _leading(S, rank)
        noise = max((np.trace(S) - values.sum()) / (N - rank), 0.0) + floor
        W = vectors * np.sqrt(np.maximum(values + floor - noise, 0.0))
        return low_rank_density(W, np.full(N, noise), N * rank + 1)

    return estimate


def factor_analyser(rank: int, floor: float) -> Estimate:
    """W Wᵀ + diag ψ by EM on the covariance; no ψ below ``floor``."""

    def estimate(S: np.ndarray) -> tuple[Density, int]:
        S = S + floor * np.eye(N)
        diagonal = np.diagonal(S)
        psi = 0.5 * diagonal
        values, vectors = _leading(S / np.sqrt(np.outer(diagonal, diagonal)), rank)
        W = np.sqrt(diagonal)[:, None] * vectors * np.sqrt(np.maximum(values - 0.5, 1e-3))
        for _ in range(30):
            scaled = W / psi[:, None]
            beta = np.linalg.solve(np.eye(rank) + W.T @ scaled, scaled.T)  # shape: (rank, n)
            Sb = S @ beta.T
            W = Sb @ np.linalg.inv(np.eye(rank) - beta @ W + beta @ Sb)
            psi = np.maximum(diagonal - np.einsum("ij,ij->i", W, Sb), floor)
        return low_rank_density(W, psi, N * rank + N)

    return estimate


def _leading(S: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues and their vectors."""
    return eigh(S, subset_by_index=(N - rank, N - 1), driver="evr", check_finite=False)


def tune(
    name: str, make: Callable[..., Any], train: np.ndarray, axes: list[list[Any]], start: tuple[int, ...]
) -> list[tuple[tuple[Any, ...], float]]:
    """Settings and their bits per pixel on the last quarter of the rows, fitted to the others; the best one first.

    Climbs a grid from ``start``: the best place so far gets all its neighbours tried, until it is better than they
    are. So the best is in the interior of ``axes``, or at an end that was meant to be one.

    Args:
        name: for the log.
        make: settings ↦ an unfitted model with ``fit`` and ``score_samples``.
        train: rows, shape (N, 784); taken as float32, which halves the time.
        axes: the values of every setting, in order.
        start: where to begin, as places on the axes.
    """
    cut, train = len(train) * 3 // 4, train.astype(np.float32)
    scores: dict[tuple[int, ...], float] = {}
    waiting = [start]
    while waiting:
        for place in waiting:
            setting = _setting(axes, place)
            scores[place] = bits(make(*setting).fit(train[:cut]).score_samples(train[cut:]))
            tqdm.write(f"tuning {name} {setting}: {scores[place]:.4f}")
        best = min(scores, key=scores.__getitem__)
        around = [
            (*best[:axis], best[axis] + step, *best[axis + 1 :])
            for axis in range(len(axes))
            for step in (-1, 1)
            if 0 <= best[axis] + step < len(axes[axis])
        ]
        waiting = [place for place in around if place not in scores]
    return [(_setting(axes, place), scores[place]) for place in sorted(scores, key=scores.__getitem__)]


def _setting(axes: list[list[Any]], place: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(axis[i] for axis, i in zip(axes, place, strict=True))
