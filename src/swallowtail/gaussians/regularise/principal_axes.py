"""Principal axes of the correlations, with variances along them that held-out rows confirm.

Rotations are few, and each of the other models leaves every direction a share of the columns' variances. So where some
columns nearly follow from others, or where neighbours in time are alike, none of them can say how little is left. The
sample's own eigenvectors can, if there are more rows than columns. Its eigenvalues are too extreme, by as much as
held-out rows say (spectrum.py). Correlations are taken, because a decomposition of columns in very different units has
no digits left for the small ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swallowtail.gaussians.regularise import spectrum
from swallowtail.gaussians.regularise.rotations import Fold, mean_variance
from swallowtail.gaussians.regularise.spectrum import RULES, Axes, Level

NONE = np.zeros((0, 2), np.int64), np.zeros(0)  # rotations


def principal_axes(fold: Fold, unseen: np.ndarray, n_samples: float) -> Axes:
    """Variances of both kinds of rows along the principal axes of one fold; arguments as of `blend.choose_blend`."""
    s = mean_variance(fold.covariance)
    S, floor = fold.covariance / s, unseen / s
    own, basis = _decomposed(S, floor)
    squares = ((fold.held_out / np.sqrt(s)) @ basis) ** 2
    delta = spectrum.analytic_intensity(S, n_samples - len(squares))
    least = floor @ basis**2
    return Axes(own, squares.mean(0) + least, len(squares), least, delta, *NONE)


def best_rule(axes: Sequence[Axes]) -> str:
    """The rule that describes held-out rows of all folds best."""
    return min(RULES, key=lambda rule: float(spectrum.cross_validated(axes, rule).mean()))


def principal_precision(S: np.ndarray, floor: np.ndarray, level: Level) -> np.ndarray:  # shape: (n, n)
    """The precision matrix for S of mean variance 1; ``floor`` is what was not seen."""
    own, basis = _decomposed(S, floor)
    return (basis / level(own, floor @ basis**2)) @ basis.T


def _decomposed(S: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the correlations (n,), rising, and eigenvectors (n, n) divided by the columns' deviations."""
    deviations = np.sqrt(np.diagonal(S) + floor)
    values, vectors = np.linalg.eigh(S / np.outer(deviations, deviations))
    return np.maximum(values, 0.0), vectors / deviations[:, None]
