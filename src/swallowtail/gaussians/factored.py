"""A covariance Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ, and what an estimator does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.operators import HybridOperator, Rotation, SymmetricOperator


class FactoredCovariance:
    """Q, D, and rank-one terms V diag(w) Vᵀ between them; all arithmetic in one dtype.

    Args:
        rotation: Q.
        variances: D > 0, shape (n,), float64.
        basis: V with orthonormal columns, shape (n, r), float64; r may be 0.
        weights: w > −1, shape (r,), float64.
        dtype: NumPy's float32 or float64, of everything that comes out.
    """

    def __init__(
        self, rotation: Rotation, variances: np.ndarray, basis: np.ndarray, weights: np.ndarray, dtype: Any
    ) -> None:
        self.variances, self._terms = variances, (basis, weights)
        kind = torch.float32 if np.dtype(dtype) == np.float32 else torch.float64
        self._dtype, self._exact = dtype, rotation.to(dtype=torch.float64)
        self.rotation = rotation.to(dtype=kind)
        self.n, self.rank, self.least = len(variances), basis.shape[1], float(variances.min())
        self._logdet = float(np.log(variances).sum() + np.log1p(weights).sum())
        d, V, w = (torch.from_numpy(np.asarray(array, np.float64)) for array in (variances, basis, weights))
        # From float64: a variance of 1e-40 has no inverse in float32, and its reciprocal none either.
        self._operators = [
            SymmetricOperator(self.rotation, power.to(kind))
            if not self.rank
            else HybridOperator(
                SymmetricOperator(self.rotation, power.to(kind)),
                self._exact((V * power.sqrt()[:, None]).mT).mT.to(kind),
                weight.to(kind),
            )
            for power, weight in ((d, w), (1 / d, -w / (1 + w)))
        ]
        self._root, self._inverse_root = d.sqrt().to(kind), (1 / d).sqrt().to(kind)
        self._basis = V.to(kind)
        self._stretch, self._shrink = torch.sqrt(1 + w).to(kind) - 1, torch.rsqrt(1 + w).to(kind) - 1

    def with_variances(self, variances: np.ndarray, dtype: Any) -> FactoredCovariance:
        """The same rotations and rank-one terms around another D (n,)."""
        return FactoredCovariance(self._exact, variances, *self._terms, dtype)

    def scaled(self, factor: float) -> FactoredCovariance:
        """Factor · Σ."""
        return self.with_variances(factor * self.variances, self._dtype)

    @property
    def covariance(self) -> SymmetricOperator | HybridOperator:
        """Σ."""
        return self._operators[0]

    @property
    def precision(self) -> SymmetricOperator | HybridOperator:
        """Σ⁻¹."""
        return self._operators[1]

    def logdet(self) -> float:
        """log det Σ."""
        return self._logdet

    def whiten(self, rows: Tensor) -> Tensor:
        """Σ^−½ x in the basis of D, for rows x (m, n): uncorrelated, variance 1."""
        z = self.rotation.T(rows) * self._inverse_root
        return z + ((z @ self._basis) * self._shrink) @ self._basis.mT if self.rank else z

    def distances(self, rows: Tensor) -> Tensor:
        """xᵀ Σ⁻¹ x for rows x (m, n)."""
        if not self.rank:
            return self._operators[1].quadratic_form(rows)
        # As a sum of squares: with a large w, the operator would subtract nearly equal numbers.
        z = self.whiten(rows)
        return (z * z).sum(-1)

    def sample(self, n_samples: int, seed: int) -> Tensor:
        """Rows of N(0, Σ), shape (n_samples, n)."""
        checks.fits_in_memory("samples", n_samples * self.n * self._root.dtype.itemsize)
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(n_samples, self.n, generator=generator, dtype=self._root.dtype)
        if self.rank:
            z = z + ((z @ self._basis) * self._stretch) @ self._basis.mT
        return self.rotation(z * self._root)


def diagonal_along(rotation: Rotation, diagonal: np.ndarray) -> np.ndarray:  # shape: (n,), float64
    """diag(QᵀCQ) for C = diag(diagonal)."""
    return SymmetricOperator(rotation.T, torch.from_numpy(diagonal)).diagonal().numpy()
