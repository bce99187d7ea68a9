"""The Gaussians of a `GivensDiscriminant`, between those of every class and one that all share.

Three kinds of candidates:

- full: each class has its own regularised covariance; variances along its axes lie between its own and those of all;
- tied: all classes have the axes of the pooled covariance; variances along them in between, in the same way;
- full, shrunk: Σ_c = (1 − γ)((1 − λ) S_c + λ S) + γ s, sample covariances of the class and of all (Friedman's
  regularised discriminant analysis, 1989). The one that is chosen is written as rotations and rank-one terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.errors import ArgumentError
from swallowtail.gaussians.covariance import GivensCovariance
from swallowtail.gaussians.covariance_fit import CovarianceRequest, fit_statistics, most_rotations
from swallowtail.gaussians.em.distances import FARTHEST
from swallowtail.gaussians.factored import FactoredCovariance, diagonal_along
from swallowtail.gaussians.regularise import spectrum
from swallowtail.gaussians.regularise.blend import BlendPlan
from swallowtail.gaussians.regularise.factorise import factorise
from swallowtail.gaussians.regularise.rotations import rotation_of

SHRUNK = (0.0, 0.1, 0.3, 0.6, 0.9)  # λ of the third kind,
SHRINKAGES = (0.01, 0.03, 0.1, 0.3)  # and γ
LARGEST_BLEND = (
    128  # columns up to which every class's own covariance is a blend: ten classes would take minutes
)
POLISH = 20
FULL = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)  # λ tried with rotations of each class
TIED = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # and with shared ones
FEW_COLUMNS = 64  # so many are always worth rotations of each class
ENOUGH = 5  # rows of a class from which it may have rotations of its own


class Candidate(NamedTuple):
    """Whose rotations, λ, and γ of the third kind."""

    rotations: str
    pooling: float
    shrinkage: float | None = None


def candidates(
    rotations: str, pooling: str | float, fewest: int, usual: float = np.inf, n: int = 0
) -> list[Candidate]:
    """What `GivensDiscriminant` may choose from; the last one suits any data.

    With many columns, rotations of each class are left out where a class has fewer rows than columns. There the other
    kinds won nearly always, and these would take most of the time.

    Args:
        rotations, pooling: as of the classifier.
        fewest: rows in the smallest class.
        usual: rows in a class, half of the classes having more.
        n: columns.
    """
    grids: dict[str, tuple[float, ...]] = {"full": FULL, "tied": TIED}
    shrunk: tuple[float, ...] = SHRUNK
    if pooling != "auto":
        number = isinstance(pooling, (int, float, np.number)) and not isinstance(pooling, bool)
        if not number or not 0 <= float(pooling) <= 1:
            raise ArgumentError("pooling", '"auto" or a number from 0 to 1', repr(pooling))
        grids, shrunk = {kind: (float(pooling),) for kind in grids}, (float(pooling),)
    kinds = ["full", "tied"] if rotations == "auto" else [rotations]
    if rotations == "auto" and fewest < ENOUGH:
        kinds = ["tied"]
    third = [Candidate("full", pool, g) for pool in shrunk for g in SHRINKAGES] if "full" in kinds else []
    if rotations == "auto" and usual < n and n > FEW_COLUMNS:
        kinds = ["tied"]
    return third + [Candidate(kind, pool) for kind in kinds for pool in grids[kind]]


class Classes:
    """Means, variances and rotations of the classes of one sample.

    Args:
        X: rows, shape (N, n).
        labels: 0 to k − 1, shape (N,).
        often: how often each row counts, shape (N,).
        n_rotations: the largest K of a Q.
        tried: what will be asked for; only what these need is fitted.
        plan: how the pooled covariance is regularised; cross-validated by default.

    Attributes:
        means: shape (k, n).
        plan: how the pooled covariance was regularised, if there is one.
    """

    def __init__(
        self,
        X: np.ndarray,
        labels: np.ndarray,
        often: np.ndarray,
        n_rotations: int | None,
        tried: list[Candidate],
        plan: BlendPlan | None = None,
    ) -> None:
        self._dtype = X.dtype
        self._budget = most_rotations(X.shape[1]) if n_rotations is None else n_rotations
        kinds = {(candidate.rotations, candidate.shrinkage is not None) for candidate in tried}
        k = int(labels.max()) + 1
        rows = [X[labels == c].astype(np.float64) for c in range(k)]
        counts = [often[labels == c] for c in range(k)]
        self.means = np.stack([np.average(r, axis=0, weights=w) for r, w in zip(rows, counts, strict=True)])
        centred = [part - mean for part, mean in zip(rows, self.means, strict=True)]
        together, weights = np.concatenate(centred), np.concatenate(counts)
        # With fewer rows than columns all of these lie in the space of the rows: these columns span it.
        self._space = np.linalg.qr(together.T)[0] if len(together) < X.shape[1] else None
        self._roots = [x * np.sqrt(w)[:, None] for x, w in zip(centred, counts, strict=True)]
        self._counts = [float(w.sum()) for w in counts]
        self._seen: tuple[float, list[Any]] | None = None
        self.plan = plan
        if kinds <= {("full", True)}:
            return
        request = CovarianceRequest(
            n_rotations=self._budget,
            wiring="pairs",
            target="likelihood",
            shrinkage="auto",
            rank_one=True,
            blend=True,
            seed=0,
            dtype=together.dtype,
        )
        statistics = GivensCovariance(n_rotations=n_rotations, assume_centered=True).new_statistics(
            X.shape[1], together.dtype
        )
        statistics.update(together, weights)
        pooled = fit_statistics(statistics, request, plan)
        self.plan = pooled.plan
        # One degree of freedom went into every mean.
        self._pooled = pooled.factored.scaled(len(together) / max(1, len(together) - len(rows)))
        self._own: list[FactoredCovariance] = []
        self._along: list[np.ndarray] = []
        if ("full", False) in kinds:
            blend = X.shape[1] <= LARGEST_BLEND
            model = GivensCovariance(n_rotations=n_rotations, rank_one=False, blend=blend)
            self._own = [model.fit(x, sample_weight=w).factored_ for x, w in zip(rows, counts, strict=True)]
            S = self._pooled.covariance.to_dense().double()
            self._across = [_diagonal_in(factored, S) for factored in self._own]
        if ("tied", False) in kinds:
            for x, w in zip(centred, counts, strict=True):
                z = self._pooled.rotation.T(torch.from_numpy(x).to(self._pooled.rotation.dtype))
                unseen = spectrum.unseen(np.average(x * x, axis=0, weights=w), x, len(x))
                squares = np.average(z.double().numpy() ** 2, axis=0, weights=w)
                self._along.append(squares + diagonal_along(self._pooled.rotation, unseen))

    def covariances(self, candidate: Candidate) -> list[FactoredCovariance]:
        """Σ_c of all classes."""
        share = candidate.pooling
        if candidate.shrinkage is not None:
            return [self._factorised(S, candidate.shrinkage) for S in self._between(share, None)]
        if candidate.rotations == "full":
            return [
                own.with_variances((1 - share) * own.variances + share * across, self._dtype)
                for own, across in zip(self._own, self._across, strict=True)
            ]
        return [
            self._pooled.with_variances((1 - share) * along + share * self._pooled.variances, self._dtype)
            for along in self._along
        ]

    def scores(self, X: np.ndarray, candidate: Candidate) -> np.ndarray:  # shape: (N, k)
        """Log-densities of rows under every class; the same X for all candidates."""
        if candidate.shrinkage is None:
            return class_scores(X, self.means, self.covariances(candidate))
        if self._seen is None or self._seen[0] != candidate.pooling:
            found = []
            for S, mean in zip(self._between(candidate.pooling, self._space), self.means, strict=True):
                values, vectors = np.linalg.eigh(S)
                rows = X - mean
                within = rows if self._space is None else rows @ self._space
                # What lies outside the space of the rows, where all variances are the same.
                outside = np.maximum((rows * rows).sum(1) - (within * within).sum(1), 0.0)
                found.append((np.maximum(values, 0.0), (within @ vectors) ** 2, outside))
            self._seen = (candidate.pooling, found)
        columns, g, n = [], candidate.shrinkage, X.shape[1]
        for values, squares, outside in self._seen[1]:
            least = g * (values.sum() / n or 1.0)
            d = (1 - g) * values + least
            logdet = np.log(2 * np.pi * d).sum() + (n - len(d)) * np.log(2 * np.pi * least)
            far = outside / least if len(d) < n else 0.0
            columns.append(-0.5 * (squares @ (1 / d) + far + logdet))
        return np.stack(columns, axis=1)

    def _between(self, share: float, space: np.ndarray | None) -> Iterator[np.ndarray]:
        """(1 − λ) S_c + λ S of every class, in the coordinates of a space (n, r) if there is one."""
        roots = self._roots if space is None else [rows @ space for rows in self._roots]
        scatters = [rows.T @ rows for rows in roots]
        S = sum(scatters) / sum(self._counts)
        return (
            (1 - share) * own / count + share * S for own, count in zip(scatters, self._counts, strict=True)
        )

    def _factorised(self, S: np.ndarray, shrinkage: float) -> FactoredCovariance:
        n = len(S)
        target = shrinkage * (float(np.trace(S)) / n or 1.0)
        covariance = (1 - shrinkage) * S + target * np.eye(n)
        made = factorise(covariance, np.zeros(n), self._budget, "likelihood", POLISH, True)
        rotation = rotation_of(n, made.pairs, made.angles)
        return FactoredCovariance(rotation, made.variances, made.basis, made.weights, self._dtype)


def class_scores(
    X: np.ndarray, means: np.ndarray, covariances: list[FactoredCovariance]
) -> np.ndarray:  # shape: (N, k)
    """Log-densities of rows under every class."""
    constant = X.shape[1] * np.log(2 * np.pi)
    columns = []
    for mean, Sigma in zip(means, covariances, strict=True):
        rows = torch.from_numpy(np.ascontiguousarray(X - mean.astype(X.dtype))).to(Sigma.rotation.dtype)
        columns.append(-0.5 * (Sigma.distances(rows).double().numpy() + constant + Sigma.logdet()))
    scores = np.stack(columns, axis=1)
    far = ~np.isfinite(scores).all(1)
    if far.any():
        scores[far] = -0.5 * _far_distances(X[far].astype(np.float64), means, covariances)
    return scores


def _far_distances(
    X: np.ndarray, means: np.ndarray, covariances: list[FactoredCovariance]
) -> np.ndarray:  # shape: (m, k)
    """Of rows beyond the range of the dtype, each in a unit of its own; in float64, and in order beyond `FARTHEST`."""
    unit = np.abs(X).max(1, keepdims=True)
    columns = []
    for mean, Sigma in zip(means, covariances, strict=True):
        wide = Sigma.with_variances(Sigma.variances, np.dtype(np.float64))
        columns.append(wide.distances(torch.from_numpy(X / unit - mean / unit)).numpy())
    found = np.stack(columns, axis=1)
    with np.errstate(over="ignore"):
        return found * np.minimum(unit**2, FARTHEST / found.max(1, keepdims=True))


def _diagonal_in(axes: FactoredCovariance, S: torch.Tensor) -> np.ndarray:  # shape: (n,)
    """diag(QᵀSQ)."""
    exact = axes.rotation.to(dtype=torch.float64).T
    return np.maximum(exact(exact(S).mT).diagonal().numpy(), 0.0)
