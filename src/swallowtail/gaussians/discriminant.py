"""GivensDiscriminant: a scikit-learn classifier with one Gaussian per class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.arguments import all_or_nothing, shares
from swallowtail.gaussians.class_gaussians import Candidate, Classes, candidates, class_scores
from swallowtail.gaussians.regularise.blend import BlendPlan
from swallowtail.gaussians.rows import check_scale, fit_weights, rows_of
from swallowtail.progress import Bar

FOLDS = 3
SMALL, MORE_FOLDS = 2**15, 5  # numbers of X up to which there are so many folds
LARGE = 2**20  # numbers of X beyond which one held-out quarter chooses instead of three folds
TEMPERATURES = np.logspace(
    -0.25, 2, 24
)  # T of softmax(scores / T); where no held-out row is wrong, the least


class GivensDiscriminant(ClassifierMixin, BaseEstimator):
    """Discriminant analysis with Gaussians N(μ_c, Q (…) Qᵀ), between quadratic and linear.

    Each class has rotations of its own, or all share those of the rows minus their class means. Variances along them
    lie between the class's own and those of all classes pooled: D = (1 − λ) D_c + λ D_pooled. With shared
    rotations and λ = 1 that is linear discriminant analysis with a regularised covariance. Friedman's regularised
    discriminant analysis is tried as well, written as rotations and rank-one terms. Held-out log-loss chooses, and sets
    the temperature of the probabilities: Gaussians in many dimensions are too sure of themselves.

    Where columns have heavy tails, or are zeros and ones, or rows are few, the probabilities of logistic regression or
    of linear discriminant analysis may be better: see the log-loss on rows of your own.

    This estimator is made to tell classes apart; for densities use `GivensCovariance` or `GivensMixture`.

    Args:
        rotations: "full" (one Q per class), "tied" (one for all), or "auto". With more than 64 columns, "auto" tries a
            Q per class only where classes have as many rows as columns.
        pooling: λ from 0 to 1, or "auto".
        n_rotations: the largest K of a Q; by default as in `GivensCovariance`.
        priors: probabilities of the classes in the order of ``classes_``; by default their shares of the rows.
        random_state: of the rows held out.
        verbose: show a progress bar.

    Attributes:
        classes_, priors_, means_: shapes (k,), (k,) and (k, n).
        covariances_: Σ_c, a list of k operators.
        rotations_, pooling_, shrinkage_, temperature_: what was chosen; ``shrinkage_`` is Friedman's γ, or None.
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
        verbose: int = 0,
    ) -> None:
        self.rotations = rotations
        self.pooling = pooling
        self.n_rotations = n_rotations
        self.priors = priors
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GivensDiscriminant:
        """Fit to the rows of X (N, n) with classes y (N,); two classes or more, and rows that differ within them.

        In the moments a row of weight 2 counts as two equal rows; what is chosen on held-out rows may differ a little.
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        X, y = rows_of(self, X, y, ensure_min_samples=2)
        check_classification_targets(y)
        check_scale(X)
        checks.choice("rotations", self.rotations, ("auto", "full", "tied"))
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ArgumentError("y", "2 classes or more", f"{len(self.classes_)} class")
        often = fit_weights(X, sample_weight)
        X, labels, often = X[often > 0], labels[often > 0], often[often > 0]
        counts, weight = np.bincount(labels), np.bincount(labels, often, len(self.classes_))
        if not weight.all():
            raise ArgumentError("sample_weight", "a positive weight in every class", "a class without one")
        self.priors_ = weight / weight.sum()
        if self.priors is not None:
            self.priors_ = shares("priors", self.priors, len(weight), above_0=True)
        fewest, usual = int(counts.min()), float(np.median(counts))
        tried = candidates(self.rotations, self.pooling, fewest, usual, X.shape[1])
        splits = self._splits(X, labels, fewest)
        steps = len(splits) * (1 + len(tried)) + 1
        with Bar(total=steps, desc="classes", disable=not self.verbose, leave=False) as bar:
            # Where columns are many, the pooled covariance is regularised once, by all rows, and not in every fold.
            whole = Classes(X, labels, often, self.n_rotations, tried) if X.shape[1] > len(X) else None
            plan = None if whole is None else whole.plan
            chosen, self.temperature_ = self._choose(X, labels, often, tried, splits, plan, bar)
            self.rotations_, self.pooling_, self.shrinkage_ = chosen
            classes = whole or Classes(X, labels, often, self.n_rotations, [chosen])
            self._covariances, self.means_ = classes.covariances(chosen), classes.means
            bar.update()

    @property
    def covariances_(self) -> list[Any]:
        """Σ_c."""
        check_is_fitted(self)
        return [factored.covariance for factored in self._covariances]

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
        X = rows_of(self, X, reset=False)
        return np.log(self.priors_) + class_scores(X, self.means_, self._covariances)

    def _splits(self, X: np.ndarray, labels: np.ndarray, fewest: int) -> list[Any]:
        """Rows to fit and rows to hold out, fold by fold; none where a class has too few."""
        if fewest < FOLDS:
            return []
        folds = FOLDS if X.size > SMALL else min(MORE_FOLDS, fewest)
        split: Any = StratifiedKFold(folds, shuffle=True, random_state=self.random_state)
        if X.size > LARGE:
            split = StratifiedShuffleSplit(1, test_size=0.25, random_state=self.random_state)
        return list(split.split(X, labels))

    def _choose(
        self,
        X: np.ndarray,
        labels: np.ndarray,
        often: np.ndarray,
        tried: list[Candidate],
        splits: list[Any],
        plan: BlendPlan | None,
        bar: Any,
    ) -> tuple[Candidate, float]:
        """The candidate with the least held-out log-loss, and its temperature.

        The last candidate, linear discriminant analysis as a rule, is left only for one that is better by more than
        one standard error of the difference.
        """
        if not splits:
            return tried[-1], 1.0
        losses = np.zeros((len(tried), len(TEMPERATURES), len(X)))  # of every row, times its weight
        for train, held in splits:
            classes = Classes(X[train], labels[train], often[train], self.n_rotations, tried, plan)
            bar.update()
            for index, candidate in enumerate(tried):
                scores = np.log(self.priors_) + classes.scores(X[held], candidate)
                for place, temperature in enumerate(TEMPERATURES):
                    logs = log_softmax(scores / temperature, axis=1)
                    losses[index, place, held] = -often[held] * logs[np.arange(len(held)), labels[held]]
                bar.update()
        warmth = losses.sum(2).argmin(1)  # shape: (candidates,)
        per_row = losses[np.arange(len(tried)), warmth]
        best = int(per_row.sum(1).argmin())
        gain = per_row[-1] - per_row[best]
        if gain.sum() <= np.sqrt(np.sum((gain - gain.mean()) ** 2)):
            best = len(tried) - 1
        return tried[best], float(TEMPERATURES[warmth[best]])
