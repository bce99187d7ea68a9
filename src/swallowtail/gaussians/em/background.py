"""The background of a mixture: a broad Gaussian for rows that are like none of its components."""

from __future__ import annotations

import math

import numpy as np

BREADTH = 0.1  # of the mean variance, added to every column's: a pixel that was always dark may be bright


class Background:
    """A diagonal Gaussian with the mean and the variances of all rows, and more, that has a small share of the mixture.

    Without it, one bright pixel where all rows were dark costs thousands of nats. With it, no row costs much more than
    under one Gaussian for all rows, and rows like those of the fit lose log(1 − share).

    Args:
        mean: of all rows, shape (n,).
        variances: of all rows, shape (n,).
        share: its weight, from 0 to 1.
    """

    def __init__(self, mean: np.ndarray, variances: np.ndarray, share: float) -> None:
        self.mean, self.share = mean, share
        self.variances = variances + BREADTH * (float(variances.mean()) or 1.0)

    def log_density(self, X: np.ndarray) -> np.ndarray:  # shape: (m,)
        """Of rows (m, n), without the share."""
        with np.errstate(over="ignore"):
            q = (((X - self.mean) / np.sqrt(self.variances)) ** 2).sum(1)
        return -0.5 * (q + len(self.mean) * math.log(2 * math.pi) + np.log(self.variances).sum())

    def beside(self, X: np.ndarray, log_density: np.ndarray) -> np.ndarray:  # shape: (m,)
        """The log-density of the whole mixture, from that of its components alone."""
        own = math.log(self.share) + self.log_density(X)
        return np.logaddexp(math.log1p(-self.share) + log_density, own)
