"""The attributes of a fitted `GivensCovariance`: its numbers, and what was chosen."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from swallowtail.gaussians.covariance_fit import CovarianceFit
from swallowtail.gaussians.factored import FactoredCovariance
from swallowtail.gaussians.statistics import RowStatistics
from swallowtail.operators import HybridOperator, SymmetricOperator


class Fitted(NamedTuple):
    """What the properties of a fitted estimator read."""

    location: np.ndarray
    fit: CovarianceFit


class CovarianceAttributes:
    """Properties that read the fitted state; it is brought up to date first."""

    statistics_: RowStatistics

    @abstractmethod
    def _state(self) -> Fitted: ...

    @abstractmethod
    def _check_seen(self) -> None: ...

    @property
    def location_(self) -> np.ndarray:
        """The mean, shape (n,)."""
        return self._state().location

    @property
    def covariance_(self) -> SymmetricOperator | HybridOperator:
        """Σ."""
        return self.factored_.covariance

    @property
    def precision_(self) -> SymmetricOperator | HybridOperator:
        """Σ⁻¹."""
        return self.factored_.precision

    @property
    def factored_(self) -> FactoredCovariance:
        """Q, D and rank-one terms: what covariance and precision are made of."""
        return self._state().fit.factored

    @property
    def noise_(self) -> float:
        """The least variance along any axis of D, in units of the mean variance."""
        return self._state().fit.noise

    @property
    def blend_(self) -> dict[str, float]:
        """The weights of the models whose precision matrices were added up, by their names; see regularise/blend.py."""
        return self._state().fit.blend

    @property
    def n_rotations_(self) -> int:
        """K."""
        return self.factored_.rotation.n_rotations

    @property
    def rank_(self) -> int:
        """The number of rank-one terms."""
        return self.factored_.rank

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in so far."""
        self._check_seen()
        return self.statistics_.n_rows

    def get_precision(self) -> SymmetricOperator | HybridOperator:
        """Σ⁻¹, under the name scikit-learn's covariance estimators use."""
        return self.precision_
