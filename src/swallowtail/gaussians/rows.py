"""Checks of rows and of their weights, wherever they come from."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError

# Deviations whose squares, times some hundred coordinates, are normal numbers; and so are their inverses.
SCALES = {np.dtype(np.float32): (1e-17, 1e17), np.dtype(np.float64): (1e-150, 1e150)}
BLOCK = 1 << 20  # numbers looked at at once
FEW = 5  # rows: from fewer nothing is chosen
HEAVIEST = 1e30  # the sum of weights, whose products with squares have to stay in the range of float32


def rows_of(model: Any, X: Any, *y: Any, **how: Any) -> Any:
    """What scikit-learn's `validate_data` makes of rows X, and of y. It would read what lies under a mask."""
    from sklearn.utils.validation import validate_data

    for name, value in zip(("X", "y"), (X, *y), strict=False):
        checks.unmasked(name, value)
    return validate_data(model, X, *y, dtype=[np.float64, np.float32], **how)


def finite_rows(X: Any, n: int, dtype: Any) -> np.ndarray:  # shape: (m, n)
    """X as an array of rows of n numbers, finite in ``dtype``."""
    checks.unmasked("X", X)
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] != n or X.dtype.kind not in "biuf":
        raise ArgumentError("X", f"rows of {n} numbers", f"{X.dtype} of shape {X.shape}")
    with np.errstate(over="ignore"):
        parts = np.array_split(X, 1 + X.size // BLOCK)
        if not all(np.isfinite(rows.astype(dtype, copy=False)).all() for rows in parts):
            got = f"NaN or infinity, or more than {np.dtype(dtype)} holds"
            raise ArgumentError("X", "finite numbers", got)
    return X


def check_scale(X: np.ndarray, dtype: Any = None) -> None:
    """Variances are squares: deviations must be such that their squares are in the range of the dtype, by default X's.

    So must be the last digits of the mean, which deviations are taken from.
    """
    dtype = X.dtype if dtype is None else np.dtype(dtype)
    low, high = SCALES[dtype]
    largest = size = 0.0
    with np.errstate(over="ignore"):
        for rows in np.array_split(X, 1 + X.size // BLOCK):
            if rows.size:
                largest = max(largest, float(np.abs(rows - X[0]).max()))
                size = max(size, float(np.abs(rows).max()))
    if largest and not low < largest < high:
        expected = f"deviations from {low:g} to {high:g}, whose squares are in the range of {dtype}"
        raise ArgumentError("X", expected, f"up to {largest:.3g}", "try other units")
    if size * np.finfo(dtype).eps > high:
        expected = f"numbers whose last digits are below {high:g}"
        raise ArgumentError("X", expected, f"up to {size:.3g}", "try other units, or subtract the mean")


def row_weights(X: np.ndarray, sample_weight: Any) -> np.ndarray:  # shape: (N,), float64
    """How often each row of X counts: once, or as ``sample_weight`` says."""
    from sklearn.utils.validation import _check_sample_weight

    checks.unmasked("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    check_sum("sample_weight", weights)
    return weights


def fit_weights(X: np.ndarray, sample_weight: Any) -> np.ndarray:  # shape: (N,), float64
    """The same for a fit: says so if weights leave next to no rows, as weights that add up to 1 do."""
    weights = row_weights(X, sample_weight)
    if weights.sum() < FEW <= len(X):
        warnings.warn(
            f"the weights of {len(X)} rows add up to {weights.sum():.3g}, so they count as so many rows; "
            "try sample_weight / sample_weight.mean()",
            UserWarning,
            stacklevel=4,
        )
    return weights


def plain_weights(name: str, weights: Any, n_rows: int) -> np.ndarray:  # shape: (n_rows,), float64
    """Weights as an array, one finite number ≥ 0 for each row."""
    checks.unmasked(name, weights)
    expected = f"{n_rows} finite numbers ≥ 0, one for each row"
    try:
        weights = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, expected, f"{type(weights).__name__} ({error})") from error
    if weights.shape != (n_rows,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ArgumentError(name, expected, f"others, of shape {weights.shape}")
    check_sum(name, weights)
    return weights


def check_sum(name: str, weights: np.ndarray) -> None:
    """Weights are multiplied with squares and with each other, so their sum has to leave room for that."""
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if total > HEAVIEST:
        hint = f"try {name} / {name}.mean()"
        raise ArgumentError(name, f"weights that add up to at most {HEAVIEST:g}", f"{total:.3g}", hint)


def weighted_mean(scores: Any, sample_weight: Any) -> float:
    """The mean of scores (N,), each as often as its row counts; of a dask array as well."""
    if sample_weight is None:
        return float(scores.mean(dtype=np.float64))
    if isinstance(scores, np.ndarray):
        sample_weight = row_weights(scores[:, None], sample_weight)
    return float(np.average(scores, weights=sample_weight))
