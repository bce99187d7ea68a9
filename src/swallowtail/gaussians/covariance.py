"""GivensCovariance: a scikit-learn estimator of a covariance Q D Qᵀ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import default_budget
from swallowtail.gaussians.arguments import check_scale, check_shrinkage
from swallowtail.gaussians.covariance_fit import Found, Request, fit_dense, fit_sketch
from swallowtail.gaussians.moments import DenseMoments, Reservoir, SketchMoments
from swallowtail.gaussians.shape import Shape
from swallowtail.operators import HybridOperator, SymmetricOperator
from swallowtail.wiring import Butterfly, Wiring

LARGEST_DENSE = 8192  # columns; beyond, n² float64 numbers take more than 512 MiB, so a sketch is kept
MORE = 4  # times n⌈lg n⌉/2 rotations are tried, up to so many columns:
LARGEST_SEARCH = 1024
BLOCK = 2**22  # numbers of X worked on at a time


class Fitted(NamedTuple):
    """What the properties of a fitted estimator read."""

    location: np.ndarray
    found: Found


class GivensCovariance(BaseEstimator):
    """Gaussian covariance Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ with Q a product of Givens rotations.

    Without rank-one terms V it stores K angles and n variances instead of n(n + 1)/2 numbers, and log-densities,
    Mahalanobis distances and samples cost O(n log n) per row; each term adds n numbers. Which columns are rotated, how
    many rotations and terms there are, and how variances are shrunk, is all chosen by cross-validated log-density
    (regularise.py). Fewer rows than columns, constant columns and duplicate columns are fine.

    Args:
        n_rotations: the largest K; by default 4 times n⌈lg n⌉/2 (once beyond 1024 columns). With a number for
            ``shrinkage`` all are used, by default n⌈lg n⌉/2.
        wiring: "pairs" chooses from the data which columns are rotated together; "butterfly" or a `Butterfly` fixes it.
        target: "likelihood" picks rotations by their gain in log-density, "matrix" by squared error. On held-out
            MNIST the first is better by 0.3 bits per pixel.
        shrinkage: "auto" chooses on held-out rows. A number b adds b times the mean variance to every variance.
        rank_one: whether rank-one terms may stand beside the rotations, where held-out rows are better for it. They
            pay with many rows, and for factor models. False keeps every row's cost at O(n log n).
        sketch: whether to keep a sketch of rank ``sketch_size`` instead of n² moments; "auto" does so above 8192
            columns. With a sketch, rotations are chosen by squared error, and there are no rank-one terms.
        sketch_size: rank of the sketch.
        assume_centered: take the mean to be 0.
        random_state: of a butterfly's or a sketch's fit. Held-out rows are picked by a hash of their contents, so the
            same rows give the same covariance, whatever their order and however they are split into calls.

    Attributes:
        location_: the mean, shape (n,).
        covariance_, precision_: Σ and Σ⁻¹ as `SymmetricOperator`, or `HybridOperator` with rank-one terms.
        n_rotations_, rank_, ridge_, noise_: what was chosen.
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
        self.sketch = sketch
        self.sketch_size = sketch_size
        self.assume_centered = assume_centered
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GivensCovariance:
        """Forget what was seen, and fit to the rows of X (N, n), N ≥ 2."""
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_scale(X)
        self._start(X)
        self._take(X)
        self._refit()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> GivensCovariance:
        """Add the rows of X to the moments; the covariance is refitted when it is next read."""
        first = not hasattr(self, "_moments")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=first)
        check_scale(X)
        if first:
            self._start(X)
        self._take(X)
        self._fitted: Fitted | None = None
        return self

    @property
    def location_(self) -> np.ndarray:
        """The mean, shape (n,)."""
        return self._state().location

    @property
    def covariance_(self) -> SymmetricOperator | HybridOperator:
        """Σ."""
        return self.shape_.covariance

    @property
    def precision_(self) -> SymmetricOperator | HybridOperator:
        """Σ⁻¹."""
        return self.shape_.precision

    @property
    def shape_(self) -> Shape:
        """Q, D and rank-one terms: what covariance and precision are made of."""
        return self._state().found.shape

    @property
    def noise_(self) -> float:
        """The least variance along any axis of D, in units of the mean variance."""
        return self._state().found.noise

    @property
    def ridge_(self) -> float:
        """What was added to the diagonal when rotations were chosen, in units of the mean variance."""
        return self._state().found.ridge

    @property
    def n_rotations_(self) -> int:
        """K."""
        return self.shape_.rotation.n_rotations

    @property
    def rank_(self) -> int:
        """The number of rank-one terms."""
        return self.shape_.rank

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in so far."""
        self._check_seen()
        return self._moments.count

    def get_precision(self) -> SymmetricOperator | HybridOperator:
        """Σ⁻¹, under the name scikit-learn's covariance estimators use."""
        return self.precision_

    def mahalanobis(self, X: Any) -> np.ndarray:
        """Squared distances (x − location)ᵀ Σ⁻¹ (x − location), shape (N,)."""
        shape = self.shape_
        return torch.cat([shape.distances(rows) for rows in self._centred(X)]).numpy()

    def whiten(self, X: Any) -> np.ndarray:
        """Rows with the location subtracted and covariance 1, in the basis of D, shape (N, n)."""
        shape = self.shape_
        return torch.cat([shape.whiten(rows) for rows in self._centred(X)]).numpy()

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-density of every row, shape (N,)."""
        q = self.mahalanobis(X)
        shape = self.shape_
        return -0.5 * (q + q.dtype.type(shape.n * math.log(2 * math.pi) + shape.logdet()))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-density of the rows of X."""
        return float(self.score_samples(X).mean(dtype=np.float64))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows from N(location, Σ), shape (n_samples, n); others at each call unless ``random_state`` is given."""
        seed = check_random_state(random_state).randint(2**31 - 1)
        n_samples = checks.integer("n_samples", n_samples, at_least=1)
        draws = self.shape_.sample(n_samples, seed).numpy()
        return draws + self.location_.astype(draws.dtype)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_moments")

    def _start(self, X: np.ndarray) -> None:
        """Check the arguments and begin with empty moments."""
        checks.choice("target", self.target, ("likelihood", "matrix"))
        if not isinstance(self.wiring, Butterfly):
            checks.choice("wiring", self.wiring, ("pairs", "butterfly"))
        check_shrinkage(self.shrinkage)
        n = X.shape[1]
        if isinstance(self.wiring, Butterfly) and self.wiring.n != n:
            expected = f"a Butterfly on the {n} columns of X"
            raise ArgumentError("wiring", expected, repr(self.wiring), f"try Butterfly({n})")
        if self.sketch not in ("auto", True, False):
            raise ArgumentError("sketch", '"auto", True or False', repr(self.sketch), 'try "auto"')
        if self.n_rotations is not None:
            checks.integer("n_rotations", self.n_rotations, at_least=0)
        dense = n <= LARGEST_DENSE if self.sketch == "auto" else not self.sketch
        size = min(n, checks.integer("sketch_size", self.sketch_size, at_least=1))
        self._moments: DenseMoments | SketchMoments = (
            DenseMoments(n, self.assume_centered) if dense else SketchMoments(n, size, self.assume_centered)
        )
        self._seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._reservoir = Reservoir()
        self._dtype = X.dtype

    def _take(self, X: np.ndarray) -> None:
        for rows in _blocks(X):
            self._moments.update(X[rows])
        self._reservoir.update(X)

    def _state(self) -> Fitted:
        """The fitted numbers, brought up to date."""
        self._check_seen()
        if self._fitted is None:
            if self._moments.count < 2:
                raise NotFittedError(
                    f"{type(self).__name__}: expected 2 rows or more before a covariance is asked for, "
                    f"got {self._moments.count}; try partial_fit with more"
                )
            self._refit()
        assert self._fitted is not None
        return self._fitted

    def _check_seen(self) -> None:
        if not hasattr(self, "_moments"):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; try fit or partial_fit first")

    def _refit(self) -> None:
        rows = self._reservoir.rows
        request = Request(
            self._budget(),
            self.wiring,
            self.target,
            self.shrinkage,
            self.rank_one,
            self._seed,
            self._dtype,
        )
        if isinstance(self._moments, DenseMoments):
            found = fit_dense(self._moments, rows, request)
        else:
            found = fit_sketch(self._moments, rows, request)
        self._fitted = Fitted(self._moments.mean.copy(), found)
        if self.shrinkage == 0 and self._moments.count <= self._moments.n:
            warnings.warn(
                f"shrinkage=0 with {self._moments.count} rows of {self._moments.n} columns: some variances are 0 in "
                'the sample, so densities mean little; try shrinkage="auto"',
                stacklevel=2,
            )

    def _budget(self) -> int:
        """The largest K."""
        n = self._moments.n
        if self.n_rotations is not None:
            return self.n_rotations
        usual = default_budget(n)
        more = self.wiring == "pairs" and self.shrinkage == "auto" and n <= LARGEST_SEARCH
        return min(MORE * usual, max(usual, n * n // 2)) if more else usual

    def _centred(self, X: Any) -> Iterator[torch.Tensor]:
        """Blocks of rows minus the location, in the data's dtype."""
        X, location = self._check(X), self.location_.astype(self._dtype)
        blocks = (X[rows].astype(self._dtype, copy=False) - location for rows in _blocks(X))
        return (torch.from_numpy(block) for block in blocks)

    def _check(self, X: Any) -> np.ndarray:
        self._check_seen()
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)


def _blocks(X: np.ndarray) -> Iterator[slice]:
    """Slices of rows, about `BLOCK` numbers each."""
    step = max(1, BLOCK // X.shape[1])
    return (slice(start, start + step) for start in range(0, len(X), step))
