"""The Gaussians of a mixture: their log-densities, and what the M-step does to them."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from scipy.special import logsumexp

from swallowtail.gaussians.em.background import Background
from swallowtail.gaussians.em.distances import Distances
from swallowtail.gaussians.mixture_statistics import MixtureStatistics
from swallowtail.gaussians.regularise.noise import NoisePlan
from swallowtail.gaussians.regularise.rotations import grow, rotation_of, variances_along
from swallowtail.gaussians.regularise.spectrum import repeated
from swallowtail.operators import Rotation, SymmetricOperator

NEGLIGIBLE = 1e-10  # a responsibility below this adds nothing to a moment in float64
LEAST = 1e-6  # a variance is at least this fraction of its column's over all data: no component is a spike
ROWS = 1024  # taken to float64 at a time
SAMPLE = 4096  # rows that show which columns mostly repeat one value


class Components:
    """Weights, means and covariances Q_k (D_k + b·s) Q_kᵀ of k Gaussians in n dimensions.

    Args:
        X: the rows of the start, shape (N, n).
        resp: their responsibilities, shape (N, k), times the weights of the rows if they have any.
        plan: ridge, number of rotations, noise b, and the share of the background.
        target: "likelihood" or "matrix".
        tied: one Q for all components.
        rotations: Q_k to begin with; chosen from the rows of the start if there are none.
    """

    def __init__(
        self,
        X: np.ndarray,
        resp: np.ndarray,
        plan: NoisePlan,
        target: str,
        tied: bool,
        rotations: list[Rotation] | None = None,
    ) -> None:
        self.plan, self.target, self.tied, self.dtype = plan, target, tied, X.dtype
        variances = X.var(0, dtype=np.float64)
        positive = variances[variances > 0]
        usual = float(np.median(positive)) if len(positive) else 1.0
        self.least = LEAST * np.where(variances > 0, variances, usual)  # shape: (n,)
        self.counts = resp.sum(0, dtype=np.float64)  # shape: (k,)
        self.means = _means(X, resp)  # shape: (k, n)
        self.noise = 0.0  # b·s
        identity = rotation_of(X.shape[1], np.zeros((0, 2), np.int64), np.zeros(0))
        self._rotate_by([identity] * resp.shape[1] if rotations is None else rotations)
        self.along = np.broadcast_to(self.least / LEAST, self.means.shape)  # D, shape: (k, n)
        self.along = self._along(X, resp, self._distances)
        self.background: Background | None = None
        if plan.background:
            self.background = Background(X.mean(0, dtype=np.float64), variances, plan.background)
            missed = plan.missed * float(self.weights @ self.along.mean(1))
            self.least = np.where(repeated(X[:SAMPLE]), np.maximum(self.least, missed), self.least)
        if rotations is None:
            self.choose_rotations(X, resp)
        else:
            self._bind()

    @property
    def weights(self) -> np.ndarray:  # shape: (k,)
        return self.counts / self.counts.sum()

    @property
    def variances(self) -> np.ndarray:  # shape: (k, n)
        return np.maximum(self.along, self.least) + self.noise

    def weighted_log_densities(self, X: np.ndarray) -> np.ndarray:  # shape: (m, k)
        """log w_k + log N(x; μ_k, Σ_k).

        The quadratic form is Σ_i (z_i − m_i)²/d_i with z = Q_kᵀ(x − c) and m = Q_kᵀ(μ_k − c): c, the mean of
        all data, keeps float32 from subtracting large numbers. A row is read once for all components.
        """
        with np.errstate(divide="ignore"):
            constant = np.log(self.weights) - 0.5 * (
                X.shape[1] * math.log(2 * math.pi) + np.log(self.variances).sum(1)
            )
        q = self._distances(X, self._centre, self._rotated_means, self._weights_along)
        return constant - 0.5 * q.astype(np.float64)

    def log_density(self, X: np.ndarray, logs: np.ndarray) -> np.ndarray:  # shape: (m,)
        """log p(x) of the mixture with its background, from `weighted_log_densities`."""
        components = logsumexp(logs, axis=1)
        return components if self.background is None else self.background.beside(X, components)

    def maximise(self, X: np.ndarray, resp: np.ndarray) -> None:
        """The M-step with rotations as they are: weights, means, and variances along Q."""
        self.counts = resp.sum(0, dtype=np.float64) + 10 * np.finfo(np.float64).eps
        self.means = _means(X, resp)
        self.along = self._along(X, resp, self._distances)
        self._bind()

    def statistics(
        self, X: np.ndarray, scatters: bool = False, weights: np.ndarray | None = None
    ) -> MixtureStatistics:
        """An E-step over rows (m, n), as statistics that merge with those of other rows.

        Args:
            X: the rows, in any dtype.
            scatters: whether to keep k matrices (n, n) as well, for choosing rotations again.
            weights: how often each row counts, shape (m,); once by default.
        """
        X = X.astype(self.dtype, copy=False)
        logs = self.weighted_log_densities(X)
        log_density, often = self.log_density(X, logs), np.ones(len(X)) if weights is None else weights
        resp = np.exp(logs - log_density[:, None]) * often[:, None]
        counts, means = resp.sum(0), _means(X, resp)
        empty = counts <= NEGLIGIBLE
        counts[empty] = 0.0
        squares = self._along(X, resp, self._distances, means) * counts[:, None]
        kept = None
        if scatters:
            kept = np.stack([_scatter(X, resp[:, k], mean) for k, mean in enumerate(means)])
        rotated = self.to_basis(means)
        return MixtureStatistics(
            counts, means, rotated, squares, float(log_density @ often), float(often.sum()), kept
        )

    def maximise_from(self, statistics: MixtureStatistics) -> None:
        """The M-step with rotations as they are, from merged statistics."""
        counts = statistics.counts
        alive = counts > NEGLIGIBLE
        self.counts = counts + 10 * np.finfo(np.float64).eps
        self.means = np.where(alive[:, None], statistics.means, self.means)
        along = statistics.squares / np.where(alive, counts, 1.0)[:, None]
        self.along = np.where(alive[:, None], along, self.least / LEAST)
        self._bind()

    def choose_rotations_from(self, statistics: MixtureStatistics) -> bool:
        """Choose each Q again from scatters and keep the better one; brings the statistics to the new axes.

        Returns whether any changed.
        """
        assert statistics.scatters is not None
        scatters, safe = statistics.scatters, np.maximum(statistics.counts, NEGLIGIBLE)
        before = list(self.rotations)
        if self.tied:
            pairs, angles = self._grow(scatters.sum(0) / safe.sum())
            along = np.stack(
                [variances_along(S / count, pairs, angles) for S, count in zip(scatters, safe, strict=True)]
            )
            if self._loss(along) @ safe < self._loss(self.along) @ safe:
                self._rotate_by([rotation_of(len(self.least), pairs, angles)] * len(safe))
                self.along = along
        else:
            rotations = list(self.rotations)
            for k, S in enumerate(scatters):
                rotation, own = self._grown(S / safe[k])
                if self._loss(own) < self._loss(self.along[k]):
                    rotations[k], self.along[k] = rotation, own
            self._rotate_by(rotations)
        statistics.rotated = self.to_basis(statistics.means)
        statistics.squares = self.along * statistics.counts[:, None]
        self._bind()
        return any(new is not old for new, old in zip(self.rotations, before, strict=True))

    def same_rotations(self, other: Components) -> bool:
        """Whether another mixture has as many components, with the same rotations."""
        pairs = zip(self.rotations, other.rotations, strict=False)
        return self.means.shape == other.means.shape and all(
            a.wiring == b.wiring and torch.equal(a.angles, b.angles) for a, b in pairs
        )

    def along_axes(self, statistics: MixtureStatistics) -> MixtureStatistics:
        """Statistics that were made with other rotations, along the axes of these; from their scatters."""
        assert statistics.scatters is not None
        found = copy.copy(statistics)
        found.rotated = self.to_basis(statistics.means)
        turned = zip(self.rotations, torch.from_numpy(statistics.scatters), strict=True)
        found.squares = np.stack([Q.T(Q.T(S).mT).diagonal().numpy() for Q, S in turned])
        return found

    def to_basis(self, rows: np.ndarray) -> np.ndarray:  # shape: (k, n)
        """Q_kᵀ of row k."""
        pairs = zip(self.rotations, torch.from_numpy(rows), strict=True)
        return np.stack([rotation.T(row).numpy() for rotation, row in pairs])

    def choose_rotations(self, X: np.ndarray, resp: np.ndarray) -> bool:
        """Choose each Q again from its component's covariance and keep the better one; returns whether any changed."""
        scatters = (_scatter(X, resp[:, k], self.means[k]) for k in range(len(self.means)))
        count = len(self.means)
        if self.tied:
            rotation, _ = self._grown(sum(scatters) / self.counts.sum())
            along = self._along(X, resp, Distances([rotation], self.dtype))
            changed = bool(self._loss(along) @ self.counts < self._loss(self.along) @ self.counts)
            if changed:
                self._rotate_by([rotation] * count)
                self.along = along
        else:
            rotations = list(self.rotations)
            for k, scatter in enumerate(scatters):
                rotation, own = self._grown(scatter / max(self.counts[k], NEGLIGIBLE))
                if self._loss(own) < self._loss(self.along[k]):
                    rotations[k], self.along[k] = rotation, own
            changed = any(new is not old for new, old in zip(rotations, self.rotations, strict=True))
            if changed:
                self._rotate_by(rotations)
        self._bind()
        return changed

    def _grow(self, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return grow(S, self.plan.ridge, self.plan.n_rotations, self.target)

    def _grown(self, S: np.ndarray) -> tuple[Rotation, np.ndarray]:
        pairs, angles = self._grow(S)
        return rotation_of(len(S), pairs, angles), variances_along(S, pairs, angles)

    def _loss(self, along: np.ndarray) -> np.ndarray:
        """−2/N_k times the expected log-density without constants, for D = along (…, n)."""
        d = np.maximum(along, self.least) + self.noise
        return (along / d + np.log(d)).sum(-1)

    def _along(
        self, X: np.ndarray, resp: np.ndarray, distances: Distances, means: np.ndarray | None = None
    ) -> np.ndarray:  # shape: (k, n)
        """Σ r z² / Σ r with z = Q_kᵀ(x − μ_k); the spread of all data where a component has no rows.

        In high dimensions each row counts for one component, so all of them together cost one pass.
        """
        along = np.empty_like(self.means)
        for k, mean in enumerate(self.means if means is None else means):
            kept = np.nonzero(resp[:, k] > NEGLIGIBLE)[0]
            if len(kept):
                r = resp[kept, k].astype(np.float64)
                usual = np.maximum(self.along[k], self.least)
                along[k] = distances.second_moments(k, X[kept], r, mean, usual) / r.sum()
            else:
                along[k] = self.least / LEAST
        return along

    def _rotate_by(self, rotations: list[Rotation]) -> None:
        self.rotations = rotations
        self._distances = Distances(rotations[:1] if self.tied else rotations, self.dtype)

    def _bind(self) -> None:
        """What the E-step needs, in the data's dtype. The noise's unit is the mean variance within components."""
        self.noise = self.plan.noise * (float(self.weights @ self.along.mean(1)) or 1.0)
        d = self.variances
        self._centre = (self.weights @ self.means).astype(self.dtype)
        self._weights_along = (1 / d).astype(self.dtype)
        centred = torch.from_numpy(self.means - self._centre)
        self._rotated_means = np.stack(
            [r.T(mean).numpy() for r, mean in zip(self.rotations, centred, strict=True)]
        ).astype(self.dtype)

    def precisions(self) -> list[SymmetricOperator]:
        """Σ_k⁻¹ as operators, in the data's dtype."""
        numbers = torch.from_numpy(self._weights_along)
        return [
            SymmetricOperator(rotation.to(dtype=numbers.dtype), weights)
            for rotation, weights in zip(self.rotations, numbers, strict=True)
        ]


def _means(X: np.ndarray, resp: np.ndarray) -> np.ndarray:  # shape: (k, n)
    """Σ r x / Σ r in float64, block by block; the mean of all where a component has no rows."""
    counts, total = resp.sum(0, dtype=np.float64), np.zeros((resp.shape[1], X.shape[1]))
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        total += resp[rows].T.astype(np.float64) @ X[rows].astype(np.float64)
    empty = counts <= NEGLIGIBLE
    total[empty] = X.mean(0, dtype=np.float64) if empty.any() and len(X) else 0.0
    return total / np.where(empty, 1.0, counts)[:, None]


def _scatter(X: np.ndarray, resp: np.ndarray, mean: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """Σ r (x − μ)(x − μ)ᵀ over the rows that count: in high dimensions each row counts for one component."""
    kept = resp > NEGLIGIBLE
    x = (X[kept] - mean) * np.sqrt(resp[kept, None])
    return x.T @ x
