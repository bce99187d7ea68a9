"""Statistics of dask arrays, reduced where the chunks lie: nothing but statistics travels.

Every chunk of rows becomes statistics, and those are merged in a tree of fan-in `FAN_IN`. The order of merging follows
the chunks, so the same chunks give the same bits, whatever worker took which. dask itself is imported only when a dask
array comes in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.rows import check_sum
from swallowtail.gaussians.statistics import Reservoir

FAN_IN = 8


def is_dask(X: Any) -> bool:
    """Whether X is a dask collection."""
    return type(X).__module__.split(".")[0] == "dask"


def reduce_blocks(X: Any, make: Callable[..., Any], weights: Any = None) -> Any:
    """``make(rows, weights)`` of every chunk of rows, merged in a tree; each result has ``merge``.

    Args:
        X: a dask array (N, n), chunks of any size; columns are brought together.
        make: runs on the workers. It may raise: the error names the chunk.
        weights: shape (N,), a dask array with any chunks or what can become one.
    """
    from dask.array import asarray
    from dask.base import compute
    from dask.delayed import delayed

    X = _rows(X)
    parts = X.to_delayed().ravel().tolist()
    shares: list[Any] = [None] * len(parts)
    if weights is not None:
        weights = asarray(weights)
        if weights.shape != X.shape[:1]:
            raise ArgumentError("sample_weight", f"shape {X.shape[:1]}, one number per row", weights.shape)
        shares = weights.rechunk((X.chunks[0],)).to_delayed().ravel().tolist()
    one, both = delayed(_one), delayed(_merged)
    level = [
        one(part, share, make, index, X.shape[1])
        for index, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]
    while len(level) > 1:
        level = [both(level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)]
    return compute(level[0])[0]


def dask_statistics(estimator: Any, X: Any, sample_weight: Any = None) -> Any:
    """`RowStatistics` of a dask array, of the kind that an estimator keeps."""
    X = _rows(X)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    empty = estimator.new_statistics(X.shape[1], dtype)
    return reduce_blocks(X, _Update(empty), sample_weight)


def map_rows(X: Any, score: Callable[[np.ndarray], np.ndarray], dtype: Any) -> Any:
    """A dask array (N,) of ``score(rows)``, made when it is computed."""
    return _rows(X).map_blocks(_Scored(score, dtype), drop_axis=1, dtype=dtype)


def dask_sample(X: Any, weights: Any = None) -> Reservoir:
    """A sample of the rows of a dask array, the same whatever the chunks."""
    X = _rows(X)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    return reduce_blocks(X, _Update(Reservoir(X.shape[1], dtype)), weights)


class EStep:
    """Rows → `MixtureStatistics` under a mixture's components."""

    def __init__(self, components: Any, scatters: bool) -> None:
        self.components, self.scatters = components, scatters

    def __call__(self, rows: np.ndarray, weights: np.ndarray | None) -> Any:
        return self.components.statistics(rows, self.scatters, weights)


class _Update:
    """Rows → statistics; a class, so that it can be pickled."""

    def __init__(self, empty: Any) -> None:
        self.empty = empty
        self.dtype = empty.rows.dtype if isinstance(empty, Reservoir) else empty.dtype

    def __call__(self, rows: np.ndarray, weights: np.ndarray | None) -> Any:
        made = copy.deepcopy(self.empty)
        if len(rows):
            made.update(np.ascontiguousarray(rows, self.dtype), weights)
        return made


class _Scored:
    """Rows → scores, also of a chunk without rows."""

    def __init__(self, score: Callable[[np.ndarray], np.ndarray], dtype: Any) -> None:
        self.score, self.dtype = score, dtype

    def __call__(self, rows: np.ndarray, block_info: Any = None) -> np.ndarray:
        if not len(rows):
            return np.zeros(0, self.dtype)
        if block_info:
            _check_finite(rows, block_info[0]["chunk-location"][0])
        return self.score(rows)


def _rows(X: Any) -> Any:
    """A dask array of two axes, all columns in one chunk; a dataframe becomes one."""
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise ArgumentError("X", "a dask array of shape (N, n)", f"{X.ndim} axes")
    return X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X


def _one(rows: Any, weights: Any, make: Callable[..., Any], index: int, n: int) -> Any:
    checks.unmasked("X", rows)
    checks.unmasked("sample_weight", weights)
    rows = np.asarray(rows)
    if rows.dtype.kind not in "biuf":
        raise ArgumentError("X", "numbers", f"{rows.dtype} in chunk {index}")
    if rows.ndim != 2 or rows.shape[1] != n:
        raise ArgumentError("X", f"{n} columns in every chunk", f"shape {rows.shape} in chunk {index}")
    _check_finite(rows, index)
    if weights is not None and not (np.isfinite(weights) & (weights >= 0)).all():
        raise ArgumentError("sample_weight", "finite numbers ≥ 0", f"others in chunk {index}")
    if weights is not None:
        check_sum("sample_weight", weights)
    return make(rows, weights)


def _check_finite(rows: np.ndarray, index: int) -> None:
    if not np.isfinite(rows).all():
        where = np.nonzero(~np.isfinite(rows))
        got = f"NaN or infinity in chunk {index}, its row {where[0][0]}, column {where[1][0]}"
        raise ArgumentError("X", "finite numbers", got, "try X[~da.isnan(X).any(axis=1)], or fill them in")


def _merged(parts: list[Any]) -> Any:
    first = copy.deepcopy(parts[0])  # what a worker holds may be asked for again
    for part in parts[1:]:
        first.merge(part)
    return first
