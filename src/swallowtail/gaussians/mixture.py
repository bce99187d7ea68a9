"""GivensMixture: a scikit-learn estimator of a mixture of Gaussians with covariances Q D Qᵀ."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import check_random_state

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.arguments import all_or_nothing, check_mixture, warn_of_few_rows
from swallowtail.gaussians.dask import EStep, dask_sample, is_dask, map_rows, reduce_blocks
from swallowtail.gaussians.em import online
from swallowtail.gaussians.em.components import Components
from swallowtail.gaussians.em.start import start
from swallowtail.gaussians.mixture_attributes import MixtureAttributes
from swallowtail.gaussians.mixture_statistics import MixtureStatistics
from swallowtail.gaussians.rows import check_scale, fit_weights, row_weights, rows_of, weighted_mean
from swallowtail.progress import Bar

BLOCK = 2**21  # numbers of X in one block of an E-step: 16 MiB
# How often rotations are chosen again after EM has settled. On MNIST-5k, 3 take twice the steps; held-out bits per
# pixel go from 4.885 to 4.859 (default K) and from 4.848 to 4.855 (K = 2000), one start each.
REFITS = 1


class GivensMixture(MixtureAttributes, DensityMixin, BaseEstimator):
    """Σ_k w_k N(μ_k, Q_k (D_k + b·s) Q_kᵀ), fitted by EM; arguments and attributes as in GaussianMixture.

    The E-step is one fused quadratic form per component, O(n log n) per row. The M-step updates weights, means and
    variances D exactly. Rotations are chosen again when EM on the rest has settled, and are kept only where they
    raise the expected log-likelihood.

    This estimator is made for densities and clusters; to predict classes that are known use `GivensDiscriminant`.

    Args:
        n_components: k.
        n_rotations: the largest K of each component; by default n⌈lg n⌉/2. Columns that nearly determine
            each other need more, and with some 30 rows per column more are better on most data: try 2n².
        rotations: "full" gives each component its own Q; "tied" gives all of them one Q, each with its own D.
        target: as in `GivensCovariance`.
        shrinkage: "auto" chooses ridge, number of rotations, noise, and the least variance of columns that mostly
            repeat one value, on held-out rows before EM begins. It adds a background: a broad Gaussian with a
            share 1/(N + 1) of the density, for rows that are like no component. A number is the noise b, in units of
            the mean variance within components.
        tol: EM has settled when the mean log-density gains less.
        max_iter: EM steps in all.
        n_init: starts; the best is kept.
        init_params: "k-means++" or "kmeans" (both k-means after a k-means++ start), or "random" responsibilities.
        weights_init, means_init: where to start, shapes (k,) and (k, n).
        random_state: of the start and of the rows held out.
        warm_start: continue from the last fit, with the rotations, the target and the shrinkage that it had.
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

    _components: Components
    _running: MixtureStatistics | None  # per row, of rows seen through partial_fit
    _steps: int  # of online EM
    _origin: bytes | None  # the same in all copies of a mixture

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GivensMixture:
        """Fit to the rows of X (N, n), N ≥ max(2, n_components); a dask array is reduced where it lies.

        In the moments a row of weight 2 counts as two equal rows; what is chosen on held-out rows may differ a little.
        """
        if is_dask(X):
            sample = dask_sample(X, sample_weight)
            reduce = lambda c, s: reduce_blocks(X, EStep(c, s), sample_weight)
            return self.fit_reductions(sample.rows, reduce, sample.weights)
        with all_or_nothing(self):
            self._fit(X, sample_weight)
        return self

    def fit_reductions(
        self,
        sample: np.ndarray,
        reduce: Callable[[Components, bool], Any],
        sample_weight: np.ndarray | None = None,
    ) -> GivensMixture:
        """Fit to rows that lie elsewhere: to a sample of them first, then EM by reductions over all.

        Args:
            sample: rows (m, n) to begin with.
            reduce: (components, with scatters?) ↦ `MixtureStatistics` of all rows under these components.
            sample_weight: weights (m,) of the sample.
        """
        with all_or_nothing(self), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._fit(sample, sample_weight)
            found = online.em(
                self._components, lambda s: reduce(self._components, s), self.max_iter, self.tol
            )
            self.lower_bounds_, self.converged_ = found
        self.lower_bound_, self.n_iter_ = self.lower_bounds_[-1], len(self.lower_bounds_)
        self._warn_unsettled()
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Fit, and the most probable component of every row, shape (N,)."""
        with all_or_nothing(self):
            return np.argmax(self._fit(X, sample_weight), axis=1)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GivensMixture:
        """Online EM: the first call fits; every later one is a stepwise update (Cappé & Moulines).

        Rotations are chosen again from all that was seen, at later calls 1, 2, 4, 8 and so on, if k matrices (n, n) of
        second moments have room.
        """
        if not hasattr(self, "_components"):
            with all_or_nothing(self):
                self.fit(X, sample_weight=sample_weight)
                self._running = online.begin(self._components, self._reduction(X, sample_weight))
                self._origin = self._components.means.tobytes()
            return self
        reduce = self._reduction(X, sample_weight)
        with all_or_nothing(self):
            self._steps += 1
            if self._running is None:
                self._running = online.resume(self._components)
            self.lower_bound_ = online.step(self._components, self._running, reduce, self._steps)
        return self

    def merge(self, other: GivensMixture) -> GivensMixture:
        """Take in what another mixture has seen through partial_fit; returns itself.

        Both must be copies of one mixture, made after its first partial_fit; each may have seen further rows. Beyond
        2²⁵ numbers in k matrices (n, n), or after `fit`, rotations stay as they were.
        """
        checks.instance("other", other, GivensMixture)
        mine, theirs = (getattr(m, "_running", None) for m in (self, other))
        if mine is None or theirs is None:
            raise ArgumentError(
                "other", "mixtures that have both seen rows through partial_fit", "one that has not"
            )
        same = self._components.same_rotations(other._components)
        related = self._origin == other._origin
        if not same and (not related or mine.scatters is None or theirs.scatters is None):
            raise ArgumentError(
                "other",
                "a copy of the same mixture",
                "one with other rotations",
                "try copy.deepcopy(mixture)",
            )
        online.merge(self._components, mine, theirs, same)
        return self

    def score_samples(self, X: Any) -> Any:
        """Log-density of every row, shape (N,), in bounded memory; of a dask array, a dask array."""
        dtype, whole = self._fitted.dtype, self._fitted.log_density
        if is_dask(X):
            return map_rows(X, self.score_samples, dtype)
        X, least = self._check(X), np.finfo(dtype).min
        parts = [whole(X[rows], logs) for rows, logs in self._log_densities(X)]
        return np.maximum(np.concatenate(parts), least).astype(dtype)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean log-density of the rows of X."""
        return weighted_mean(self.score_samples(X).astype(np.float64), sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of every row, shape (N,)."""
        return np.concatenate([logs.argmax(1) for _, logs in self._log_densities(self._check(X))])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every component given the row, shape (N, k)."""
        return np.concatenate([softmax(logs, axis=1) for _, logs in self._log_densities(self._check(X))])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_components")

    @property
    def _fitted(self) -> Components:
        if not hasattr(self, "_components"):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; try fit or partial_fit first")
        return self._components

    def _fit(self, X: Any, sample_weight: Any) -> np.ndarray:
        """EM from every start; the responsibilities of a last E-step, so that predict and fit_predict agree."""
        X = rows_of(self, X, ensure_min_samples=2)
        check_scale(X)
        check_mixture(self, X)
        often = fit_weights(X, sample_weight)
        state = check_random_state(self.random_state)
        warm = self.warm_start and hasattr(self, "_components")
        if warm:
            self._components = copy.copy(self._components)  # what is continued stays as it is if this fails
        best: tuple[float, Any] = (-np.inf, None)
        self._running, self._steps, self._origin = None, 0, None  # of rows that are forgotten now
        for _ in range(1 if warm else self.n_init):
            if not warm:
                self._components = start(self, X, often, state)
            history, converged = self._em(X, often)
            if best[1] is None or history[-1] > best[0]:
                best = (history[-1], (self._components, history, converged))
        self._components, self.lower_bounds_, self.converged_ = best[1]
        self.lower_bound_, self.n_iter_ = self.lower_bounds_[-1], len(self.lower_bounds_)
        self._warn_unsettled()
        fewest = float(self._components.weights.min() * often.sum())
        warn_of_few_rows(self.shrinkage, fewest, X.shape[1], " in the smallest component")
        return self._e_step(X)[1]

    def _reduction(self, X: Any, sample_weight: Any) -> online.Reduce:
        """The E-step over further rows; of a dask array, where they lie."""
        if is_dask(X):
            if X.shape[1] != self.n_features_in_:
                raise ArgumentError("X", f"{self.n_features_in_} features, as seen before", X.shape[1])
            return lambda scatters: reduce_blocks(X, EStep(self._components, scatters), sample_weight)
        X = self._check(X)
        check_scale(X, self._components.dtype)
        often = row_weights(X, sample_weight)
        return lambda scatters: self._components.statistics(X, scatters, often)

    def _warn_unsettled(self) -> None:
        if not self.converged_:
            warnings.warn(
                f"EM had not settled after max_iter={self.max_iter} steps; try more, a larger tol, or fewer components",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _em(self, X: np.ndarray, often: np.ndarray) -> tuple[list[float], bool]:
        """Steps until nothing moves: the mean log-density before each, and whether EM settled."""
        history: list[float] = []
        refits = 0
        with Bar(total=self.max_iter, desc="EM", disable=not self.verbose, leave=False) as bar:
            for _ in range(self.max_iter):
                log_density, resp = self._e_step(X)
                resp *= often[:, None]
                history.append(float(np.average(log_density, weights=often)))
                bar.update()
                bar.set_postfix(log_density=f"{history[-1]:.4f}")
                settled = len(history) > 1 and abs(history[-1] - history[-2]) < self.tol
                self._components.maximise(X, resp)
                if settled:
                    refits += 1
                    if refits > REFITS or not self._components.choose_rotations(X, resp):
                        return history, True
        return history, False

    def _e_step(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-densities (N,) and responsibilities (N, k)."""
        found = list(self._log_densities(X))
        log_density = np.concatenate([self._components.log_density(X[rows], logs) for rows, logs in found])
        return log_density, np.exp(np.concatenate([logs for _, logs in found]) - log_density[:, None])

    def _log_densities(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows, and their log w_k + log N_k, shape (m, k), block by block; each in the mixture's dtype."""
        step = max(1, BLOCK // X.shape[1])
        parts = (slice(start, start + step) for start in range(0, len(X), step))
        return ((rows, self._fitted.weighted_log_densities(X[rows])) for rows in parts)

    def _check(self, X: Any) -> np.ndarray:
        _ = self._fitted
        return rows_of(self, X, reset=False)
