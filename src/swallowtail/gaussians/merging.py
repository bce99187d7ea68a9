"""What a `GivensCovariance` does with rows that come in pieces: batches, merging, forgetting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import _num_samples

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.arguments import all_or_nothing
from swallowtail.gaussians.covariance_attributes import CovarianceAttributes, Fitted
from swallowtail.gaussians.statistics import RowStatistics
from swallowtail.progress import Bar


class Merging(CovarianceAttributes):
    """Methods of an estimator that keeps `RowStatistics`."""

    feature_names_in_: np.ndarray
    _fitted: Fitted | None

    @abstractmethod
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all that was seen."""

    @abstractmethod
    def _start(self, n: int, dtype: Any) -> None: ...

    def fit_batches(self, batches: Iterable[Any], progress: bool = False) -> Self:
        """Forget what was seen, and fit to batches of rows from any iterator, each read once.

        Args:
            batches: arrays of shape (m, n), or tuples of such an array and weights (m,); m may be 0. A memory-mapped
                array needs none of this, `fit` reads it in blocks. Weights have to be real numbers, as float64: what is
                whole is taken for the classes of a pair (X, y), which have no place here, and is an error.
            progress: show a bar.
        """
        checks.items("batches", batches, "arrays of shape (m, n), from any iterator")
        with all_or_nothing(self):
            self.reset()
            for index, batch in enumerate(Bar(batches, desc="rows", disable=not progress, unit=" batches")):
                try:
                    rows, weights = _parted(batch)
                    if _num_samples(rows):
                        self.partial_fit(rows, sample_weight=weights)
                except (TypeError, ValueError) as error:
                    got = f"in batch {index}: {error}"
                    raise ArgumentError("batches", "rows that can be used", got) from error
            if not hasattr(self, "statistics_"):
                raise ArgumentError("batches", "one batch of rows or more", "none")
            self._state()
        return self

    def merge(self, other: Merging) -> Self:
        """Take in all rows that another estimator has seen; both keep their arguments. Returns itself."""
        if not isinstance(other, Merging):
            raise ArgumentError("other", f"a {type(self).__name__}", type(other).__name__)
        other._check_seen()
        names = getattr(other, "feature_names_in_", None)
        if names is not None:
            if not hasattr(self, "statistics_"):
                self.feature_names_in_ = names
            own = getattr(self, "feature_names_in_", names)
            if not np.array_equal(own, names):
                raise ArgumentError("other", f"columns {own.tolist()}", names.tolist())
        return self.add_statistics(other.statistics_)

    def add_statistics(self, statistics: RowStatistics) -> Self:
        """Take in statistics made elsewhere; see `RowStatistics`. Returns itself."""
        checks.instance("statistics", statistics, RowStatistics)
        if not hasattr(self, "statistics_"):
            self._start(statistics.n, statistics.dtype)
        self.statistics_.merge(statistics)
        self._fitted = None
        return self

    def forget(self, share: float) -> Self:
        """What was seen so far counts ``share`` as much from now on, 0 to 1. Returns itself."""
        self._check_seen()
        self.statistics_.forget(share)
        self._fitted = None
        return self


def _parted(batch: Any) -> tuple[Any, Any]:
    """The rows of a batch, and their weights or None."""
    if not isinstance(batch, tuple):
        return batch, None
    if len(batch) != 2:
        raise ArgumentError("", "rows, or a pair of rows and weights", f"a tuple of {len(batch)}")
    rows, weights = batch
    if weights is not None:
        kind = np.asarray(weights).dtype
        if kind.kind != "f":
            hint = "try astype(float) on weights, and rows alone in place of (X, y)"
            raise ArgumentError("", "weights that are real numbers beside the rows", kind, hint)
    return rows, weights
