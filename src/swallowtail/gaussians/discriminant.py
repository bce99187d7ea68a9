"""GivensDiscriminant: a scikit-learn classifier with one Gaussian per class."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.classes import Candidate, Classes, candidates

FOLDS = 3
LARGE = 2**20  # numbers of X beyond which one held-out quarter chooses instead of three folds
TEMPERATURES = np.logspace(-0.5, 2, 26)  # T of softmax(scores / T)


class GivensDiscriminant(ClassifierMixin, BaseEstimator):
    """Discriminant analysis with Gaussians N(μ_c, Q (…) Qᵀ), between quadratic and linear.

    Each class has rotations of its own, or all share those of the rows minus their class means. Variances along them
    lie between the class's own and those of all classes pooled: D = (1 − λ) D_c + λ D_pooled. With shared
    rotations and λ = 1 that is linear discriminant analysis with a regularised covariance. Held-out log-loss chooses,
    and sets the temperature of the probabilities: Gaussians in many dimensions are too sure of themselves.

    Args:
        rotations: "full" (one Q per class), "tied" (one for all), or "auto".
        pooling: λ from 0 to 1, or "auto".
        n_rotations: the largest K of a Q; by default as in `GivensCovariance`.
        priors: probabilities of the classes in the order of ``classes_``; by default their shares of the rows.
        random_state: of the rows held out.

    Attributes:
        classes_, priors_, means_: shapes (k,), (k,) and (k, n).
        covariances_: Σ_c, a list of k operators.
        rotations_, pooling_, temperature_: what was chosen.
        n_features_in_: n.

    >>> X = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [9, 9], [8, 9], [9, 8], [8, 8]])
    >>> GivensDiscriminant().fit(X, [0, 0, 0, 0, 1, 1, 1, 1]).predict([[0.5, 0.2], [8, 7]]).tolist()
    [0, 1]
    """

    def __init__(
        self,
        *,
        rotations: str = "auto",
        pooling: str | float = "auto",
        n_rotations: int | None = None,
        priors: Any = None,
        random_state: Any = None,
    ) -> None:
        self.rotations = rotations
        self.pooling = pooling
        self.n_rotations = n_rotations
        self.priors = priors
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> GivensDiscriminant:
        """Fit to the rows of X (N, n) with classes y (N,); two classes or more, and rows that differ within them."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(y)
        checks.choice("rotations", self.rotations, ("auto", "full", "tied"))
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ArgumentError("y", "2 classes or more", f"{len(self.classes_)} class")
        counts = np.bincount(labels)
        self.priors_ = self._checked_priors(counts / counts.sum())
        tried = candidates(self.rotations, self.pooling, int(counts.min()))
        chosen, self.temperature_ = self._choose(X, labels, tried, int(counts.min()))
        self.rotations_, self.pooling_ = chosen
        classes = Classes(X, labels, self.n_rotations, [chosen])
        self._shapes, self.means_ = classes.shapes(chosen), classes.means
        return self

    @property
    def covariances_(self) -> list[Any]:
        """Σ_c."""
        check_is_fitted(self)
        return [shape.covariance for shape in self._shapes]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log prior + log density of every class, shape (N, k); of two classes the second less the first, (N,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row, shape (N,)."""
        best = self._scores(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, shape (N, k)."""
        scores = self._scores(X)
        return softmax(scores / self.temperature_, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms, shape (N, k)."""
        scores = self._scores(X)
        return log_softmax(scores / self.temperature_, axis=1)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.log(self.priors_) + class_scores(X, self.means_, self._shapes)

    def _checked_priors(self, shares: np.ndarray) -> np.ndarray:
        if self.priors is None:
            return shares
        priors = np.asarray(self.priors, np.float64)
        if priors.shape != shares.shape or (priors <= 0).any() or abs(priors.sum() - 1) > 1e-6:
            expected = f"{len(shares)} positive numbers that add up to 1"
            raise ArgumentError("priors", expected, repr(self.priors))
        return priors

    def _choose(
        self, X: np.ndarray, labels: np.ndarray, tried: list[Candidate], fewest: int
    ) -> tuple[Candidate, float]:
        """The candidate with the least held-out log-loss, and its temperature."""
        if fewest < FOLDS:
            return tried[-1], 1.0
        split: Any = StratifiedKFold(FOLDS, shuffle=True, random_state=self.random_state)
        if X.size > LARGE:
            split = StratifiedShuffleSplit(1, test_size=0.25, random_state=self.random_state)
        losses, rows = np.zeros((len(tried), len(TEMPERATURES))), 0
        for train, held in split.split(X, labels):
            classes = Classes(X[train], labels[train], self.n_rotations, tried)
            rows += len(held)
            for index, candidate in enumerate(tried):
                scores = np.log(self.priors_) + class_scores(
                    X[held], classes.means, classes.shapes(candidate)
                )
                for place, temperature in enumerate(TEMPERATURES):
                    logs = log_softmax(scores / temperature, axis=1)
                    losses[index, place] -= logs[np.arange(len(held)), labels[held]].sum()
        best, warmth = np.unravel_index(np.argmin(losses), losses.shape)
        return tried[int(best)], float(TEMPERATURES[warmth])


def class_scores(X: np.ndarray, means: np.ndarray, shapes: list[Any]) -> np.ndarray:  # shape: (N, k)
    """Log-densities of rows under every class."""
    constant = X.shape[1] * np.log(2 * np.pi)
    columns = []
    for mean, shape in zip(means, shapes, strict=True):
        rows = torch.from_numpy(np.ascontiguousarray(X - mean.astype(X.dtype))).to(shape.rotation.dtype)
        columns.append(-0.5 * (shape.distances(rows).double().numpy() + constant + shape.logdet()))
    return np.stack(columns, axis=1)
