"""GivensCovariance: a scikit-learn estimator of a covariance Q D Qᵀ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import default_budget
from swallowtail.gaussians.arguments import (
    all_or_nothing,
    check_covariance,
    warn_of_a_matrix,
    warn_of_few_rows,
)
from swallowtail.gaussians.covariance_attributes import Fitted
from swallowtail.gaussians.covariance_fit import CovarianceRequest, fit_statistics, most_rotations
from swallowtail.gaussians.dask import dask_statistics, is_dask, map_rows
from swallowtail.gaussians.factored import FactoredCovariance
from swallowtail.gaussians.merging import Merging
from swallowtail.gaussians.rows import SCALES, check_scale, fit_weights, rows_of, weighted_mean
from swallowtail.gaussians.statistics import RowStatistics, blocks
from swallowtail.wiring import Wiring

LARGEST_DENSE = 8192  # columns; beyond, n² float64 numbers take more than 512 MiB, so a sketch is kept


class GivensCovariance(Merging, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A Gaussian covariance in few numbers: Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ, Q a product of Givens rotations.

    Without rank-one terms V it stores K angles and n variances instead of n(n + 1)/2 numbers, and a log-density, a
    Mahalanobis distance or a sample costs O(n log n). Each term adds n numbers.

    Up to 1024 columns, Σ⁻¹ is a weighted sum of the precision matrices of six models: rotations, two linear shrinkages,
    a tree, factors and principal axes. Cross-validated log-density chooses the weights; the sum is then approximated by
    rotations and rank-one terms. Where held-out rows ask for it, squared distances are kept below three times those of
    the OAS estimate.

    Fewer rows than columns, constant columns and duplicate columns are fine. If columns determine each other exactly,
    densities have no upper limit. Then 1e-10 of a column's variance is taken to be left.

    This estimator is made for densities, distances and whitening. To tell classes apart use `GivensDiscriminant`. One
    covariance per class, each chosen for its own density, is 0.1 less accurate on Fashion-MNIST than the best classical
    rival, and the changes that mend it cost density (docs/benchmarks.md, "Densities and classes want different
    covariances").

    ``statistics_`` holds a sample of at most 4096 rows as they are, and so does every pickle of the estimator.

    Args:
        n_rotations: the largest K; by default 4 times n⌈lg n⌉/2 (once beyond 1024 columns). With a number for
            ``shrinkage`` all are used, by default n⌈lg n⌉/2.
        wiring: "pairs" chooses from the data which columns are rotated together; "butterfly" or a `Butterfly` fixes it.
        target: "likelihood" picks rotations by their gain in log-density, "matrix" by squared error. On held-out
            MNIST the first is better by 0.3 bits per pixel.
        shrinkage: "auto" chooses on held-out rows. A number b adds b times the mean variance to every variance.
        rank_one: whether there may be rank-one terms for what the rotations leave, at most n/4 or 16, whichever is
            more. They pay with many rows, for factor models, and where columns nearly determine each other. False keeps
            the cost of every row at O(n log n).
        blend: whether other models than rotations may be blended in, up to 1024 columns. Without them a fit to 784
            columns takes a third of the time.
        sketch: whether to keep a sketch of rank ``sketch_size`` instead of n² moments; "auto" does so above 8192
            columns. With a sketch, rotations are chosen by squared error, and there are no rank-one terms.
        sketch_size: rank of the sketch.
        assume_centered: take the mean to be 0.
        random_state: of a butterfly's or a sketch's fit. Held-out rows are picked by a hash of their contents, so the
            same rows give the same covariance, whatever their order and however they are split into calls.

    Attributes:
        location_: the mean, shape (n,).
        covariance_, precision_: Σ and Σ⁻¹ as `SymmetricOperator`, or `HybridOperator` with rank-one terms.
        n_rotations_, rank_, blend_, noise_: what was chosen.
        n_samples_seen_: rows so far.
        n_features_in_: n.

    >>> X = np.random.default_rng(0).standard_normal((500, 3)) @ np.diag([1.0, 2.0, 3.0])
    >>> GivensCovariance().fit(X).covariance_.diagonal().sqrt().round().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        *,
        n_rotations: int | None = None,
        wiring: str | Wiring = "pairs",
        target: str = "likelihood",
        shrinkage: str | float = "auto",
        rank_one: bool = True,
        blend: bool = True,
        sketch: str | bool = "auto",
        sketch_size: int = 64,
        assume_centered: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_rotations = n_rotations
        self.wiring = wiring
        self.target = target
        self.shrinkage = shrinkage
        self.rank_one = rank_one
        self.blend = blend
        self.sketch = sketch
        self.sketch_size = sketch_size
        self.assume_centered = assume_centered
        self.random_state = random_state

    n_features_in_: int
    _fitted: Fitted | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GivensCovariance:
        """Forget what was seen, and fit to the rows of X (N, n), N ≥ 2; a dask array is reduced where it lies.

        In the moments a row of weight 2 counts as two equal rows; what is chosen on held-out rows may differ a little.
        """
        with all_or_nothing(self):
            self.reset()
            if not is_dask(X):
                warn_of_a_matrix(X)
            self._take(X, sample_weight, fewest=2)
            self._refit()
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GivensCovariance:
        """Add the rows of X to the statistics; the covariance is refitted when it is next read."""
        with all_or_nothing(self):
            self._take(X, sample_weight, fewest=1)
        return self

    def mahalanobis(self, X: Any) -> np.ndarray:
        """Squared distances (x − location)ᵀ Σ⁻¹ (x − location), shape (N,); ∞ where they are beyond the dtype."""
        return torch.cat(list(self._each(X, lambda Sigma, rows: Sigma.distances(rows), 2))).numpy()

    def whiten(self, X: Any) -> np.ndarray:
        """Rows with the location subtracted and covariance 1, in the basis of D, shape (N, n)."""
        return torch.cat(list(self._each(X, lambda Sigma, rows: Sigma.whiten(rows), 1))).numpy()

    def transform(self, X: Any) -> np.ndarray:
        """The same as `whiten`: a step of a pipeline, with ``set_output`` and names of its columns."""
        return self.whiten(X)

    @property
    def _n_features_out(self) -> int:
        return self.statistics_.n

    def score_samples(self, X: Any) -> Any:
        """Log-density of every row, shape (N,); of a dask array, a dask array."""
        if is_dask(X):
            self._state()
            return map_rows(X, self.score_samples, self.statistics_.dtype)
        q = self.mahalanobis(X)
        Sigma = self.factored_
        return -0.5 * (q + q.dtype.type(Sigma.n * math.log(2 * math.pi) + Sigma.logdet()))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean log-density of the rows of X."""
        return weighted_mean(self.score_samples(X), sample_weight)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows from N(location, Σ), shape (n_samples, n); others at each call unless ``random_state`` is given."""
        seed = check_random_state(random_state).randint(2**31 - 1)
        n_samples = checks.integer("n_samples", n_samples, at_least=1)
        draws = self.factored_.sample(n_samples, seed).numpy()
        return draws + self.location_.astype(draws.dtype)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "statistics_")

    def new_statistics(self, n: int, dtype: Any) -> RowStatistics:
        """Empty statistics of the kind this estimator keeps, for rows of n columns."""
        check_covariance(self, n)
        dense = n <= LARGEST_DENSE if self.sketch == "auto" else not self.sketch
        return RowStatistics(n, dtype, None if dense else min(n, self.sketch_size), self.assume_centered)

    def reset(self) -> None:
        """Forget all that was seen."""
        for name in ("statistics_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)
        self._fitted = None

    def _start(self, n: int, dtype: Any) -> None:
        self.statistics_ = self.new_statistics(n, dtype)
        self.n_features_in_ = n
        self._seed = check_random_state(self.random_state).randint(2**31 - 1)

    def _take(self, X: Any, sample_weight: Any, fewest: int) -> None:
        """Check rows and take them in."""
        first = not hasattr(self, "statistics_")
        if is_dask(X):
            found = dask_statistics(self, X, sample_weight)
            if not first and found.n != self.n_features_in_:
                raise ArgumentError("X", f"{self.n_features_in_} features, as seen before", found.n)
            self.n_features_in_ = found.n
            if found.n_rows < fewest:
                raise ArgumentError("X", f"{fewest} rows or more", found.n_rows)
            self.add_statistics(found)
            return
        X = rows_of(self, X, reset=first, ensure_min_samples=fewest)
        check_scale(X, None if first else self.statistics_.dtype)
        weights = None if sample_weight is None else fit_weights(X, sample_weight)
        if first:
            self._start(X.shape[1], X.dtype)
        self.statistics_.update(X, weights)
        self._fitted = None

    def _state(self) -> Fitted:
        """The fitted numbers, brought up to date."""
        self._check_seen()
        if self._fitted is None:
            if self.statistics_.n_rows < 2:
                raise NotFittedError(
                    f"{type(self).__name__}: expected 2 rows or more before a covariance is asked for, "
                    f"got {self.statistics_.n_rows}; try partial_fit with more"
                )
            self._refit()
        assert self._fitted is not None
        return self._fitted

    def _check_seen(self) -> None:
        if not hasattr(self, "statistics_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; try fit or partial_fit first")

    def _refit(self) -> None:
        moments = self.statistics_.moments
        check_covariance(self, moments.n)  # again: arguments may have been set since the rows came
        if moments.count <= 0:
            raise ArgumentError(
                "sample_weight",
                "weights that add up to more than 0",
                moments.count,
                "or partial_fit after forget(0)",
            )
        if not np.isfinite(moments.variances).all():
            high = SCALES[self.statistics_.dtype][1]
            expected = f"deviations up to {high:g}, whose squares are in the range of float64"
            raise ArgumentError("X", expected, "larger ones", "try other units")
        request = CovarianceRequest(
            n_rotations=self._budget(),
            wiring=self.wiring,
            target=self.target,
            shrinkage=self.shrinkage,
            rank_one=self.rank_one,
            blend=self.blend,
            seed=self._seed,
            dtype=self.statistics_.dtype,
        )
        self._fitted = Fitted(moments.mean.copy(), fit_statistics(self.statistics_, request))
        warn_of_few_rows(self.shrinkage, moments.count, moments.n, "")

    def _budget(self) -> int:
        """The largest K."""
        n = self.statistics_.n
        if self.n_rotations is not None:
            return self.n_rotations
        more = self.wiring == "pairs" and self.shrinkage == "auto"
        return most_rotations(n) if more else default_budget(n)

    def _each(
        self, X: Any, what: Callable[[FactoredCovariance, torch.Tensor], torch.Tensor], power: int
    ) -> Iterator[torch.Tensor]:
        """``what`` of Σ and of blocks of rows minus the location, in the data's dtype.

        Rows beyond its range are done in float64, each in a unit of its own. ``power`` is how results grow with that.
        """
        self._check_seen()
        X, dtype, Sigma = rows_of(self, X, reset=False), self.statistics_.dtype, self.factored_
        for part in blocks(X):
            with np.errstate(over="ignore", invalid="ignore"):
                rows = X[part].astype(dtype, copy=False) - self.location_.astype(dtype)
            found = what(Sigma, torch.from_numpy(rows))
            far = ~(found if found.ndim == 1 else found.sum(1)).isfinite()
            if far.any():
                x, location = X[part][far.numpy()].astype(np.float64), self.location_
                unit = np.maximum(np.abs(x).max(1, keepdims=True), np.abs(location).max())
                wide = Sigma.with_variances(Sigma.variances, np.float64)
                near = what(wide, torch.from_numpy(x / unit - location / unit))
                grown = torch.from_numpy(unit).reshape(-1, *[1] * (near.ndim - 1))
                found[far] = (near * grown**power).to(found.dtype)
            yield found
