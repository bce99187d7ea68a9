"""The Gaussians of a `GivensDiscriminant`: rotations of every class and of all pooled, and variances between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from swallowtail.errors import ArgumentError
from swallowtail.gaussians import spectrum
from swallowtail.gaussians.covariance import GivensCovariance
from swallowtail.gaussians.shape import Shape
from swallowtail.operators import SymmetricOperator

FULL = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)  # λ tried with rotations of each class
TIED = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # and with shared ones
ENOUGH = 5  # rows of a class from which it may have rotations of its own


class Candidate(NamedTuple):
    """Whose rotations, and λ."""

    rotations: str
    pooling: float


def candidates(rotations: str, pooling: str | float, fewest: int) -> list[Candidate]:
    """What `GivensDiscriminant` may choose from; the last one suits any data.

    Args:
        rotations, pooling: as of the classifier.
        fewest: rows in the smallest class.
    """
    grids = {"full": FULL, "tied": TIED}
    if pooling != "auto":
        number = isinstance(pooling, (int, float, np.number)) and not isinstance(pooling, bool)
        if not number or not 0 <= float(pooling) <= 1:
            raise ArgumentError("pooling", '"auto" or a number from 0 to 1', repr(pooling))
        grids = {kind: (float(pooling),) for kind in grids}
    kinds = ["full", "tied"] if rotations == "auto" else [rotations]
    if rotations == "auto" and fewest < ENOUGH:
        kinds = ["tied"]
    return [Candidate(kind, pool) for kind in kinds for pool in grids[kind]]


class Classes:
    """Means, variances and rotations of the classes of one sample.

    Args:
        X: rows, shape (N, n).
        labels: 0 to k − 1, shape (N,).
        n_rotations: the largest K of a Q.
        tried: what will be asked for; only what these need is fitted.
    """

    def __init__(
        self, X: np.ndarray, labels: np.ndarray, n_rotations: int | None, tried: list[Candidate]
    ) -> None:
        self._dtype = X.dtype
        kinds = {candidate.rotations for candidate in tried}
        rows = [X[labels == k].astype(np.float64) for k in range(int(labels.max()) + 1)]
        self.means = np.stack([part.mean(0) for part in rows])  # shape: (k, n)
        centred = np.concatenate([part - mean for part, mean in zip(rows, self.means, strict=True)])
        pooled = GivensCovariance(n_rotations=n_rotations, assume_centered=True).fit(centred)
        # One degree of freedom went into every mean.
        self._pooled = pooled.shape_.scaled(len(centred) / max(1, len(centred) - len(rows)))
        self._own: list[Shape] = []
        self._along: list[np.ndarray] = []
        if "full" in kinds:
            fitted = [GivensCovariance(n_rotations=n_rotations, rank_one=False).fit(part) for part in rows]
            self._own = [model.shape_ for model in fitted]
            S = self._pooled.covariance.to_dense().double()
            self._across = [_diagonal_in(shape, S) for shape in self._own]
        if "tied" in kinds:
            for part, mean in zip(rows, self.means, strict=True):
                z = self._pooled.rotation.T(torch.from_numpy(part - mean).to(self._pooled.rotation.dtype))
                unseen = spectrum.unseen(part.var(0), part, len(part))
                missed = SymmetricOperator(self._pooled.rotation.T, torch.from_numpy(unseen)).diagonal()
                self._along.append((z.double() ** 2).mean(0).numpy() + missed.double().numpy())

    def shapes(self, candidate: Candidate) -> list[Shape]:
        """Σ_c of all classes."""
        share = candidate.pooling
        if candidate.rotations == "full":
            return [
                shape.with_variances((1 - share) * shape.variances + share * across, self._dtype)
                for shape, across in zip(self._own, self._across, strict=True)
            ]
        return [
            self._pooled.with_variances((1 - share) * along + share * self._pooled.variances, self._dtype)
            for along in self._along
        ]


def _diagonal_in(shape: Shape, S: torch.Tensor) -> np.ndarray:  # shape: (n,)
    """diag(QᵀSQ)."""
    exact = shape.rotation.to(dtype=torch.float64).T
    return np.maximum(exact(exact(S).mT).diagonal().numpy(), 0.0)
