"""GivensCovariance: a scikit-learn estimator of a covariance Q D Qᵀ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.factor import fit_factor
from swallowtail.gaussians.arguments import check_shrinkage
from swallowtail.gaussians.moments import DenseMoments, Reservoir, SketchMoments
from swallowtail.gaussians.selection import NOISES, Fold, Plan, choose, fit_covariance, least_variances
from swallowtail.operators import Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Wiring

LARGEST_DENSE = 8192  # columns; beyond, n² float64 numbers take more than 512 MiB, so a sketch is kept
POLISH = 20  # L-BFGS iterations on all angles: 0.018 bits per pixel better on held-out MNIST-5k
N_FOLDS = 3
CHEAP = 1e7  # n·K up to which every fold chooses ridge and K (n = 1024 with the default K); beyond, only the first
BLOCK = 2**22  # numbers of X worked on at a time


class GivensCovariance(BaseEstimator):
    """Gaussian covariance Σ = Q (D + b·s) Qᵀ with Q a product of Givens rotations chosen from the data.

    It stores K angles and n variances instead of n(n + 1)/2 numbers. Log-densities, Mahalanobis distances and samples
    cost O(n log n) per row. The number of rotations and the noise b are chosen on held-out rows. Fewer rows than
    columns, constant columns and duplicate columns are fine.

    Args:
        n_rotations: the largest K; by default n⌈lg n⌉/2. With a number for ``shrinkage`` all are used.
        wiring: "pairs" chooses from the data which columns are rotated together; "butterfly" or a `Butterfly` fixes it.
        target: "likelihood" picks rotations by their gain in log-density, "matrix" by squared error. On held-out
            MNIST the first is better by 0.3 bits per pixel.
        shrinkage: "auto" chooses on held-out rows; a number is b, in units of the mean variance s.
        sketch: whether to keep a sketch of rank ``sketch_size`` instead of n² moments; "auto" does so above 8192
            columns. With a sketch, rotations are chosen by squared error.
        sketch_size: rank of the sketch.
        assume_centered: take the mean to be 0.
        random_state: of a butterfly's or a sketch's fit. Held-out rows are picked by a hash of their contents, so the
            same rows give the same covariance, whatever their order and however they are split into calls.

    Attributes:
        location_: the mean, shape (n,).
        covariance_, precision_: Σ and Σ⁻¹ as `SymmetricOperator`.
        noise_, ridge_, n_rotations_: what was chosen.
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
        sketch: str | bool = "auto",
        sketch_size: int = 64,
        assume_centered: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_rotations = n_rotations
        self.wiring = wiring
        self.target = target
        self.shrinkage = shrinkage
        self.sketch = sketch
        self.sketch_size = sketch_size
        self.assume_centered = assume_centered
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GivensCovariance:
        """Forget what was seen, and fit to the rows of X (N, n), N ≥ 2."""
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self._start(X)
        self._take(X)
        self._refit()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> GivensCovariance:
        """Add the rows of X to the moments; the covariance is refitted when it is next read."""
        first = not hasattr(self, "_moments")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=first)
        if first:
            self._start(X)
        self._take(X)
        self._fitted: dict[str, Any] | None = None
        return self

    @property
    def location_(self) -> np.ndarray:
        """The mean, shape (n,)."""
        return self._state()["location"]

    @property
    def covariance_(self) -> SymmetricOperator:
        """Σ."""
        return self._state()["covariance"]

    @property
    def precision_(self) -> SymmetricOperator:
        """Σ⁻¹."""
        return self._state()["precision"]

    @property
    def noise_(self) -> float:
        """b, in units of the mean variance."""
        return self._state()["plan"].noise

    @property
    def ridge_(self) -> float:
        """What was added to the diagonal when rotations were chosen, in units of the mean variance."""
        return self._state()["plan"].ridge

    @property
    def n_rotations_(self) -> int:
        """K."""
        return self.covariance_.rotation.n_rotations

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in so far."""
        self._check_seen()
        return self._moments.count

    def get_precision(self) -> SymmetricOperator:
        """Σ⁻¹, under the name scikit-learn's covariance estimators use."""
        return self.precision_

    def mahalanobis(self, X: Any) -> np.ndarray:
        """Squared distances (x − location)ᵀ Σ⁻¹ (x − location), shape (N,)."""
        X = self._check(X)
        location, precision = self.location_.astype(self._dtype), self.precision_
        blocks = (X[rows].astype(self._dtype, copy=False) - location for rows in _blocks(X))
        return torch.cat([precision.quadratic_form(torch.from_numpy(block)) for block in blocks]).numpy()

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-density of every row, shape (N,)."""
        q = self.mahalanobis(X)
        constant = self.covariance_.n * math.log(2 * math.pi) + float(self.covariance_.logdet())
        return -0.5 * (q + q.dtype.type(constant))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-density of the rows of X."""
        return float(self.score_samples(X).mean(dtype=np.float64))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows from N(location, Σ), shape (n_samples, n); others at each call unless ``random_state`` is given."""
        seed = check_random_state(random_state).randint(2**31 - 1)
        draws = self.covariance_.sample(checks.integer("n_samples", n_samples, at_least=1), seed=seed)
        return draws.numpy() + self.location_.astype(draws.numpy().dtype)

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

    def _state(self) -> dict[str, Any]:
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
        n = self._moments.n
        budget = default_budget(n) if self.n_rotations is None else self.n_rotations
        if isinstance(self._moments, DenseMoments):
            plan = self._plan(self._moments, budget)
            rotation, d = fit_covariance(
                self._moments.covariance, plan, self.target, self.wiring, POLISH, self._seed
            )
        else:
            rotation, d, plan = self._fit_sketch(self._moments, budget)
        dtype = torch.float32 if self._dtype == np.float32 else torch.float64
        covariance = SymmetricOperator(rotation.to(dtype=dtype), torch.from_numpy(d).to(dtype))
        self._fitted = {
            "location": self._moments.mean.copy(),
            "covariance": covariance,
            # From float64: a variance of 1e-40 has no inverse in float32, and its reciprocal none either.
            "precision": SymmetricOperator(covariance.rotation, torch.from_numpy(1 / d).to(dtype)),
            "plan": plan,
        }

    def _plan(self, moments: DenseMoments, budget: int) -> Plan:
        if self.shrinkage != "auto":
            return Plan(0.0, budget, float(self.shrinkage))
        rows = self._reservoir.rows.astype(np.float64)
        parts = np.array_split(rows, min(N_FOLDS, len(rows)))
        folds = (Fold(*moments.without(part)) for part in parts if len(part) < moments.count)
        plan = choose(folds, budget, self.target, every_fold=moments.n * budget <= CHEAP)
        return plan if self.wiring == "pairs" else plan._replace(n_rotations=budget)

    def _fit_sketch(self, moments: SketchMoments, budget: int) -> tuple[Rotation, np.ndarray, Plan]:
        """Rotations from the sketch. The variance that the sketch leaves out is rotated and added to D."""
        factor, rest = moments.factor(), moments.rest()
        fit = fit_factor(factor, budget, seed=self._seed)
        rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
        # diag(QᵀRQ) for the diagonal R, n quadratic forms in blocks.
        d = fit.eigenvalues + SymmetricOperator(rotation.T, torch.from_numpy(rest)).diagonal().numpy()
        d = np.maximum(d, least_variances(moments.variances))
        s = float(moments.variances.mean()) or 1.0
        if self.shrinkage != "auto":
            noise = float(self.shrinkage)
        else:
            rows = torch.from_numpy(self._reservoir.rows.astype(np.float64) - moments.mean)
            z2 = (rotation.T(rows).numpy() ** 2).mean(0)
            losses = [(z2 / (d + b * s) + np.log(d + b * s)).sum() for b in NOISES]
            noise = float(NOISES[int(np.argmin(losses))])
        return rotation, d + noise * s, Plan(0.0, budget, noise)

    def _check(self, X: Any) -> np.ndarray:
        self._check_seen()
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)


def _blocks(X: np.ndarray) -> Iterator[slice]:
    """Slices of rows, about `BLOCK` numbers each."""
    step = max(1, BLOCK // X.shape[1])
    return (slice(start, start + step) for start in range(0, len(X), step))
