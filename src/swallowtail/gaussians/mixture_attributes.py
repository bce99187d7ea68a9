"""What a fitted `GivensMixture` is asked beside densities: its numbers, samples, criteria for how many components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from swallowtail import checks
from swallowtail.gaussians.em.components import Components
from swallowtail.operators import SymmetricOperator


class MixtureAttributes:
    """Numbers, samples, BIC and AIC of a mixture."""

    if TYPE_CHECKING:  # what the mixture brings along
        random_state: Any

        @property
        def _fitted(self) -> Components: ...

        def score(self, X: Any, y: Any = None) -> float: ...

        def _check(self, X: Any) -> np.ndarray: ...

    @property
    def weights_(self) -> np.ndarray:
        """w, shape (k,)."""
        return self._fitted.weights

    @property
    def means_(self) -> np.ndarray:
        """μ, shape (k, n)."""
        return self._fitted.means

    @property
    def covariances_(self) -> list[SymmetricOperator]:
        """Σ_k."""
        return [precision.inverse() for precision in self.precisions_]

    @property
    def precisions_(self) -> list[SymmetricOperator]:
        """Σ_k⁻¹."""
        return self._fitted.precisions()

    @property
    def noise_(self) -> float:
        """b."""
        return self._fitted.plan.noise

    @property
    def n_rotations_(self) -> list[int]:
        """K of every component."""
        return [rotation.n_rotations for rotation in self._fitted.rotations]

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n_samples, n) and the components they come from, grouped by component as GaussianMixture does.

        Without ``random_state`` that of the estimator is used, as GaussianMixture does too.
        """
        n_samples = checks.integer("n_samples", n_samples, at_least=1)
        state = check_random_state(self.random_state if random_state is None else random_state)
        counts = state.multinomial(n_samples, self.weights_)
        parts = []
        for k, covariance in enumerate(self.covariances_):
            draws = covariance.sample(int(counts[k]), seed=int(state.randint(2**31 - 1))).numpy()
            parts.append(draws + self.means_[k].astype(draws.dtype))
        return np.concatenate(parts), np.repeat(np.arange(len(counts)), counts)

    def bic(self, X: Any) -> float:
        """−2 log-likelihood + parameters · log N: smaller is better."""
        X = self._check(X)
        return -2 * self.score(X) * len(X) + self.n_parameters * float(np.log(len(X)))

    def aic(self, X: Any) -> float:
        """−2 log-likelihood + 2 · parameters: smaller is better."""
        X = self._check(X)
        return -2 * self.score(X) * len(X) + 2 * self.n_parameters

    @property
    def n_parameters(self) -> int:
        """Free numbers: weights, means, variances and angles (a tied Q counts once), no more than a full Q has."""
        k, n = self.means_.shape
        angles = [min(count, n * (n - 1) // 2) for count in self.n_rotations_]
        return k - 1 + 2 * k * n + (angles[0] if self._fitted.tied else sum(angles))
