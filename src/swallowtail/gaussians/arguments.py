"""Checks of the estimators' arguments, made in ``fit`` as scikit-learn wants it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring import Butterfly

# Deviations whose squares, times some hundred coordinates, are normal numbers; and so are their inverses.
SCALES = {np.dtype(np.float32): (1e-17, 1e17), np.dtype(np.float64): (1e-150, 1e150)}
BLOCK = 1 << 20  # numbers looked at at once
FEW = 5  # rows: from fewer nothing is chosen
HARDLY_ANY = 1e-6  # of the mean variance: less noise leaves unseen directions next to no variance


def check_shrinkage(value: Any) -> None:
    """``shrinkage`` is "auto" or a finite number ≥ 0."""
    if isinstance(value, str) and value == "auto":
        return
    try:
        checks.number("shrinkage", value, at_least=0)
    except ArgumentError as error:
        raise ArgumentError("shrinkage", '"auto" or a number ≥ 0', error.got) from error


def warn_of_a_matrix(X: Any) -> None:
    """Say so if what should be rows looks like a covariance: square, symmetric, of a diagonal above 0."""
    shape: tuple[int, ...] = tuple(getattr(X, "shape", ()))
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 3:
        return
    matrix = np.asarray(X)
    if matrix.dtype.kind in "fiu" and np.array_equal(matrix, matrix.T) and (np.diagonal(matrix) > 0).all():
        text = f"X {shape} is symmetric, as a covariance is; its rows are taken for samples"
        warnings.warn(
            f"{text}. A covariance is fitted by swallowtail.fit_symmetric(X)", UserWarning, stacklevel=3
        )


def check_scale(X: np.ndarray) -> None:
    """Variances are squares: deviations must be such that their squares are in the range of the dtype.

    So must be the last digits of the mean, which deviations are taken from.
    """
    low, high = SCALES[X.dtype]
    largest = size = 0.0
    with np.errstate(over="ignore"):
        for rows in np.array_split(X, 1 + X.size // BLOCK):
            if rows.size:
                largest = max(largest, float(np.abs(rows - X[0]).max()))
                size = max(size, float(np.abs(rows).max()))
    if largest and not low < largest < high:
        expected = f"deviations from {low:g} to {high:g}, whose squares are in the range of {X.dtype}"
        raise ArgumentError("X", expected, f"up to {largest:.3g}", "try other units")
    if size * np.finfo(X.dtype).eps > high:
        expected = f"numbers whose last digits are below {high:g}"
        raise ArgumentError("X", expected, f"up to {size:.3g}", "try other units, or subtract the mean")


def row_weights(X: np.ndarray, sample_weight: Any) -> np.ndarray:  # shape: (N,), float64
    """How often each row of X counts: once, or as ``sample_weight`` says."""
    from sklearn.utils.validation import _check_sample_weight

    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


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


def weighted_mean(scores: Any, sample_weight: Any) -> float:
    """The mean of scores (N,), each as often as its row counts; of a dask array as well."""
    if sample_weight is None:
        return float(scores.mean(dtype=np.float64))
    if isinstance(scores, np.ndarray):
        sample_weight = row_weights(scores[:, None], sample_weight)
    return float(np.average(scores, weights=sample_weight))


def warn_of_few_rows(shrinkage: Any, n_rows: float, n: int, where: str) -> None:
    """Say so if a number for ``shrinkage`` leaves directions without variance; ``where`` ends the count of rows."""
    if shrinkage != "auto" and float(shrinkage) < HARDLY_ANY and n_rows <= n:
        warnings.warn(
            f"shrinkage={shrinkage:g} with {n_rows:.0f} rows of {n} columns{where}: some variances are 0 in the "
            'sample, so densities mean little; try shrinkage="auto"',
            stacklevel=4,
        )


def check_covariance(model: Any, n: int) -> None:
    """All arguments of a `GivensCovariance` that is to be fitted to rows of n columns."""
    checks.choice("target", model.target, ("likelihood", "matrix"))
    if not isinstance(model.wiring, Butterfly):
        checks.choice("wiring", model.wiring, ("pairs", "butterfly"))
    check_shrinkage(model.shrinkage)
    if isinstance(model.wiring, Butterfly) and model.wiring.n != n:
        expected = f"a Butterfly on the {n} columns of X"
        raise ArgumentError("wiring", expected, repr(model.wiring), f"try Butterfly({n})")
    if not isinstance(model.sketch, (bool, np.bool_)) and not (
        isinstance(model.sketch, str) and model.sketch == "auto"
    ):
        raise ArgumentError("sketch", '"auto", True or False', repr(model.sketch), 'try "auto"')
    for name in ("rank_one", "blend", "assume_centered"):
        checks.flag(name, getattr(model, name))
    if model.n_rotations is not None:
        checks.integer("n_rotations", model.n_rotations, at_least=0)
    checks.integer("sketch_size", model.sketch_size, at_least=1)


def check_mixture(model: Any, X: np.ndarray) -> None:
    """All arguments of a `GivensMixture` that is to be fitted to the rows of X (N, n)."""
    k = checks.integer("n_components", model.n_components, at_least=1)
    checks.integer("max_iter", model.max_iter, at_least=1)
    checks.integer("n_init", model.n_init, at_least=1)
    if model.n_rotations is not None:
        checks.integer("n_rotations", model.n_rotations, at_least=0)
    checks.choice("rotations", model.rotations, ("full", "tied"))
    checks.choice("target", model.target, ("likelihood", "matrix"))
    checks.choice("init_params", model.init_params, ("k-means++", "kmeans", "random"))
    check_shrinkage(model.shrinkage)
    checks.number("tol", model.tol, at_least=0)
    for name, value, shape in (
        ("weights_init", model.weights_init, (k,)),
        ("means_init", model.means_init, (k, X.shape[1])),
    ):
        if value is not None and np.shape(value) != shape:
            raise ArgumentError(name, f"shape {shape}", np.shape(value))
    if k > 1:
        _check_distinct(X, k)


def _check_distinct(X: np.ndarray, k: int) -> None:
    """At least k rows of X differ; few of them usually show it."""
    distinct = len(np.unique(X[: 4 * k], axis=0))
    distinct = distinct if distinct >= k else len(np.unique(X, axis=0))
    if k > distinct:
        expected = f"at most the {distinct} distinct rows of X (n_samples={len(X)})"
        raise ArgumentError("n_components", expected, k, f"try n_components={distinct} or fewer")
