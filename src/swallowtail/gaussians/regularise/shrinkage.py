"""Linear shrinkage of a covariance and of its correlations, and what few held-out rows cannot tell.

S is a sample covariance (n, n) of mean variance 1. ``floor`` (n,) is the variance of every column that its rows may
have missed, and δ is that of OAS (Chen et al., 2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swallowtail.gaussians.regularise.spectrum import analytic_intensity
from swallowtail.gaussians.regularise.weights import log_determinant

# Few rows say little about a model. So exp(−(N / this)²) of all held-out rows are taken to be as `_expected` says.
# Where columns nearly determine each other, a part that falls with N² only would still be too much after 160 rows.
FEW = 10.0
SPREAD = 13.0  # how many times larger than its own a column's variance may be there, times that share squared
DOUBT = 3.7  # and how far below most others, in median absolute deviations of log variances: 2.5 standard deviations


def shrunk(S: np.ndarray, floor: np.ndarray, n_samples: float) -> np.ndarray:  # shape: (n, n)
    """(1 − δ) S + δ."""
    delta = analytic_intensity(S, n_samples)
    return (1 - delta) * S + np.diag(delta + floor)


def scaled(S: np.ndarray, floor: np.ndarray, n_samples: float) -> np.ndarray:  # shape: (n, n)
    """The same of the correlations, with the columns' own variances: the columns' units do not matter."""
    variances = np.diagonal(S) + floor
    deviations = np.sqrt(variances)
    C = S / np.outer(deviations, deviations)
    np.fill_diagonal(C, 1.0)
    found = (1 - analytic_intensity(C, n_samples)) * S
    np.fill_diagonal(found, variances)
    return found


def reconsidered(
    moments: np.ndarray,
    n_samples: float,
    own: np.ndarray,
    models: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:  # shape: (n, n)
    """Second moments of held-out rows, brought nearer to what shrinkage expects if there are few rows.

    Args:
        moments: of the held-out rows, shape (n, n).
        n_samples: rows of the whole sample.
        own: variances of the columns, of the rows that are not held out, shape (n,).
        models: `shrunk` and `scaled`, each with its inverse.
    """
    few = float(np.exp(-((n_samples / FEW) ** 2)))
    limits = np.minimum(np.diagonal(models[0][0]), (1 + SPREAD * few**2) * _believed(own))
    return (1 - few) * moments + few * _expected(models, limits, moments)


def _believed(variances: np.ndarray) -> np.ndarray:  # shape: (n,)
    """Variances of columns, those of tiny ones raised to what may be believed.

    Columns may differ in their units. But few rows of a column with heavy tails may lie close together: of a column of
    the Boston house prices 6 rows may show 1/370 of its deviation. So a variance is not believed to be farther below
    most others than `DOUBT` says.
    """
    logs = np.log(variances)
    middle = np.median(logs)
    return np.maximum(variances, np.exp(middle - DOUBT * np.median(np.abs(logs - middle))))


def _expected(
    models: Sequence[tuple[np.ndarray, np.ndarray]], variances: np.ndarray, moments: np.ndarray
) -> np.ndarray:  # shape: (n, n)
    """One of the ``models``, covariances and their inverses, brought to these variances of the columns.

    It is the one under which held-out rows with these second ``moments`` have the higher density: "shrunk" suits
    columns in the same unit, "scaled" others.
    """
    found, least = models[0][0], np.inf
    for covariance, precision in models:
        scale = np.sqrt(variances / np.diagonal(covariance))
        both = np.outer(scale, scale)
        loss = np.vdot(precision / both, moments) + 2 * np.log(scale).sum() - log_determinant(precision)
        if loss < least:
            found, least = covariance * both, loss
    return found
