"""GivensMixture: a scikit-learn estimator of a mixture of Gaussians with covariances Q D Qᵀ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from tqdm import tqdm

from swallowtail import checks
from swallowtail.fitting.budget import default_budget
from swallowtail.gaussians.arguments import check_mixture, check_scale
from swallowtail.gaussians.components import Components, make_plan
from swallowtail.gaussians.selection import Plan
from swallowtail.operators import SymmetricOperator

BLOCK = 2**21  # numbers of X in one block of an E-step: 16 MiB
# How often rotations are chosen again after EM has settled. On MNIST-5k, 3 take twice the steps; held-out bits per
# pixel go from 4.885 to 4.859 (default K) and from 4.848 to 4.855 (K = 2000), one start each.
REFITS = 1
FORGETTING = 0.6  # step t of online EM weighs (t + 2)^−0.6; any exponent in (½, 1] converges


class GivensMixture(DensityMixin, BaseEstimator):
    """Σ_k w_k N(μ_k, Q_k (D_k + b·s) Q_kᵀ), fitted by EM; arguments and attributes as in GaussianMixture.

    The E-step is one fused quadratic form per component, O(n log n) per row. The M-step updates weights, means and
    variances D exactly. Rotations are chosen again when EM on the rest has settled, and are kept only where they
    raise the expected log-likelihood.

    Args:
        n_components: k.
        n_rotations: the largest K of each component; by default n⌈lg n⌉/2.
        rotations: "full" gives each component its own Q; "tied" gives all of them one Q, each with its own D.
        target: as in `GivensCovariance`.
        shrinkage: "auto" chooses ridge, number of rotations and noise on held-out rows before EM begins. A number is
            the noise b, in units of the mean variance within components.
        tol: EM has settled when the mean log-density gains less.
        max_iter: EM steps in all.
        n_init: starts; the best is kept.
        init_params: "k-means++" or "kmeans" (both k-means after a k-means++ start), or "random" responsibilities.
        weights_init, means_init: where to start, shapes (k,) and (k, n).
        random_state: of the start and of the rows held out.
        warm_start: continue from the last fit.
        verbose: show a progress bar.

    Attributes:
        weights_, means_: shapes (k,) and (k, n).
        covariances_, precisions_: lists of k `SymmetricOperator`.
        noise_, n_rotations_: what was chosen.
        converged_, n_iter_, lower_bound_, lower_bounds_: of the best start.
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        n_rotations: int | None = None,
        rotations: str = "full",
        target: str = "likelihood",
        shrinkage: str | float = "auto",
        tol: float = 1e-3,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "k-means++",
        weights_init: Any = None,
        means_init: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_rotations = n_rotations
        self.rotations = rotations
        self.target = target
        self.shrinkage = shrinkage
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> GivensMixture:
        """Fit to the rows of X (N, n), N ≥ max(2, n_components)."""
        self._fit(X)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and the most probable component of every row, shape (N,)."""
        return np.argmax(self._fit(X), axis=1)

    def partial_fit(self, X: Any, y: Any = None) -> GivensMixture:
        """Online EM: the first call fits; every later one is a stepwise update of weights, means and D.

        Rotations stay those of the first call, so give it enough rows to choose them.
        """
        if not hasattr(self, "_components"):
            self.fit(X)
            self._steps = 0
            return self
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        check_scale(X)
        self._steps = getattr(self, "_steps", 0) + 1
        X = X.astype(self._components.dtype, copy=False)
        log_density, resp = self._e_step(X)
        self._components.merge(X, resp, (self._steps + 2) ** -FORGETTING)
        self.lower_bound_ = float(log_density.mean())
        return self

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

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-density of every row, shape (N,); any number of rows in bounded memory."""
        parts = [logsumexp(part, axis=1) for part in self._log_densities(self._check(X))]
        return np.concatenate(parts)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-density of the rows of X."""
        return float(self.score_samples(X).mean())

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of every row, shape (N,)."""
        return np.concatenate([part.argmax(1) for part in self._log_densities(self._check(X))])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every component given the row, shape (N, k)."""
        return self._e_step(self._check(X))[1]

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
        """Free numbers: weights, means, variances and angles (a tied Q counts once)."""
        k, n = self.means_.shape
        return k - 1 + 2 * k * n + (self.n_rotations_[0] if self._fitted.tied else sum(self.n_rotations_))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_components")

    @property
    def _fitted(self) -> Components:
        if not hasattr(self, "_components"):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; try fit or partial_fit first")
        return self._components

    def _fit(self, X: Any) -> np.ndarray:
        """EM from every start; the responsibilities of a last E-step, so that predict and fit_predict agree."""
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_scale(X)
        check_mixture(self, X)
        state = check_random_state(self.random_state)
        warm = self.warm_start and hasattr(self, "_components")
        best: tuple[float, Any] = (-np.inf, None)
        for _ in range(1 if warm else self.n_init):
            if not warm:
                self._components = self._start(X, state)
            history, converged = self._em(X)
            if best[1] is None or history[-1] > best[0]:
                best = (history[-1], (self._components, history, converged))
        self._components, self.lower_bounds_, self.converged_ = best[1]
        self.lower_bound_, self.n_iter_ = self.lower_bounds_[-1], len(self.lower_bounds_)
        if not self.converged_:
            warnings.warn(
                f"EM had not settled after max_iter={self.max_iter} steps; try more, a larger tol, or fewer components",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self._e_step(X)[1]

    def _em(self, X: np.ndarray) -> tuple[list[float], bool]:
        """Steps until nothing moves: the mean log-density before each, and whether EM settled."""
        history: list[float] = []
        refits = 0
        with tqdm(total=self.max_iter, desc="EM", disable=not self.verbose, leave=False) as bar:
            for _ in range(self.max_iter):
                log_density, resp = self._e_step(X)
                history.append(float(log_density.mean()))
                bar.update()
                bar.set_postfix(log_density=f"{history[-1]:.4f}")
                settled = len(history) > 1 and abs(history[-1] - history[-2]) < self.tol
                self._components.maximise(X, resp)
                if settled:
                    refits += 1
                    if refits > REFITS or not self._components.choose_rotations(X, resp):
                        return history, True
        return history, False

    def _start(self, X: np.ndarray, state: np.random.RandomState) -> Components:
        k = self.n_components
        if self.means_init is not None:
            means = np.asarray(self.means_init, np.float64)
            distances = np.stack([((X - mean) ** 2).sum(1) for mean in means], axis=1)
            labels = distances.argmin(1)
        elif self.init_params == "random":
            labels = state.randint(0, k, len(X))
        else:
            labels = KMeans(k, n_init=1, random_state=state).fit(X).labels_.astype(np.int64)
        budget = default_budget(X.shape[1]) if self.n_rotations is None else self.n_rotations
        tied, rotations = self.rotations == "tied", None
        if self.shrinkage == "auto":
            generator = np.random.default_rng(state.randint(2**31 - 1))
            plan, rotations = make_plan(X, labels, budget, self.target, tied, generator)
        else:
            plan = Plan(0.0, budget, float(self.shrinkage))
        resp = np.zeros((len(X), k), X.dtype)
        resp[np.arange(len(X)), labels] = 1.0
        components = Components(X, resp, plan, self.target, tied, rotations)
        if self.weights_init is not None:
            components.counts = np.asarray(self.weights_init, np.float64) * len(X)
        if self.means_init is not None:
            components.means = np.asarray(self.means_init, np.float64).copy()
        return components

    def _e_step(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-densities (N,) and responsibilities (N, k)."""
        logs = np.concatenate(list(self._log_densities(X)))
        log_density = logsumexp(logs, axis=1)
        return log_density, np.exp(logs - log_density[:, None])

    def _log_densities(self, X: np.ndarray) -> Iterator[np.ndarray]:
        """log w_k + log N_k, shape (m, k), block by block; each is taken to the mixture's dtype on its own."""
        step = max(1, BLOCK // X.shape[1])
        return (
            self._fitted.weighted_log_densities(X[start : start + step]) for start in range(0, len(X), step)
        )

    def _check(self, X: Any) -> np.ndarray:
        _ = self._fitted
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
