"""Checks of the estimators' arguments, made in ``fit`` as scikit-learn wants it; rows.py has those of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring import Butterfly

ROUNDED = 1e-6  # how far from 1 shares may add up to
HARDLY_ANY = 1e-6  # of the mean variance: less noise leaves unseen directions next to no variance


@contextmanager
def all_or_nothing(model: Any) -> Iterator[None]:
    """Where a fit fails, the estimator is what it was before: a stream of rows is not lost to one bad array."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def numbers(name: str, value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """``value`` as float64 numbers of a shape; ``what`` says what was expected."""
    checks.unmasked(name, value)
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(name, what, repr(value)) from error
    if found.shape != shape:
        raise ArgumentError(name, f"shape {shape}", found.shape)
    if not np.isfinite(found).all():
        raise ArgumentError(name, what, "NaN or infinity among them")
    return found


def shares(name: str, value: Any, k: int, above_0: bool = False) -> np.ndarray:  # shape: (k,)
    """``value`` as k probabilities."""
    what = f"{k} numbers {'>' if above_0 else '≥'} 0 that add up to 1"
    found = numbers(name, value, (k,), what)
    if found.min() < 0 or (above_0 and found.min() == 0) or abs(found.sum() - 1) > ROUNDED:
        raise ArgumentError(name, what, found.tolist(), "try dividing them by their sum")
    return found


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
    checks.flag("warm_start", model.warm_start)
    if model.weights_init is not None:
        shares("weights_init", model.weights_init, k)
    if model.means_init is not None:
        numbers("means_init", model.means_init, (k, X.shape[1]), "finite numbers")
    if model.warm_start and hasattr(model, "_components"):
        _check_continued(model._components.means.shape, (k, X.shape[1]))
    if k > 1:
        _check_distinct(X, k)


def _check_continued(before: tuple[int, ...], now: tuple[int, ...]) -> None:
    """What ``warm_start`` continues from has as many components and columns."""
    for name, what, old, new in zip(
        ("n_components", "X"), ("components", "columns"), before, now, strict=True
    ):
        if old != new:
            expected = f"{old} {what}, as in the fit that warm_start=True continues"
            raise ArgumentError(name, expected, new, "try `warm_start=False`")


def _check_distinct(X: np.ndarray, k: int) -> None:
    """At least k rows of X differ; few of them usually show it."""
    distinct = len(np.unique(X[: 4 * k], axis=0))
    distinct = distinct if distinct >= k else len(np.unique(X, axis=0))
    if k > distinct:
        expected = f"at most the {distinct} distinct rows of X (n_samples={len(X)})"
        raise ArgumentError("n_components", expected, k, f"try n_components={distinct} or fewer")
