"""Heavy tails in few rows of columns in different units: a blend is brought nearer to plain shrinkage.

The bound of outlier_bound.py is no help there. It compares with shrinkage towards equal variances, which then describes
nothing; held to the correlations' shrinkage instead, breast cancer's raw columns lose 0.03 to 0.06 nats per dimension.
And the rows that would be worst are not among the few that are held out. So two thirds of the precision matrix become
that of OAS of the correlations, and all variances grow by a seventh. With 80 rows of breast cancer this costs 0.014
nats per dimension, and the lowest score of 40 splits is −781 and not −1550.

Fewer rows than columns, or than twenty, do not tell a column's own variance well enough: 13 rows of the Boston house
prices lost half a nat per dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swallowtail.gaussians.regularise.weights import FoldModels, best_single

FEWEST = 20  # rows, and no fewer than columns
MANY = 6.0  # rows per column; with more it costs 0.02 nats per dimension
UNITS = 0.1  # nats per dimension by which shrunk correlations describe held-out rows better, if units differ
# Tails are heavy if log squared distances of held-out rows deviate this many times as much as a Gaussian's. On average
# it is 3.3 times on breast cancer, 1.8 to 2.1 on house prices, 1.0 to 1.5 on wine, cars and diabetes.
HEAVY = 1.75
SHARE, MORE = 0.65, 0.15


def cautious(
    folds: Sequence[FoldModels], weights: np.ndarray, shrunk: int, scaled: int, n_samples: float
) -> np.ndarray:  # shape: (members,)
    """The weights of a blend, or more careful ones.

    Args:
        folds: what every fold tells.
        weights: the best ones, shape (members,).
        shrunk: which member is shrinkage towards equal variances,
        scaled: and which one that of the correlations.
        n_samples: rows of the whole sample.
    """
    n = len(folds[0].moments)
    if not max(n, FEWEST) <= n_samples <= MANY * n:
        return weights
    if best_single(folds, shrunk).loss - best_single(folds, scaled).loss < UNITS:
        return weights
    if _spread(folds, weights) < HEAVY * np.sqrt(2 / n):  # q of n Gaussian columns: mean n, variance 2n
        return weights
    careful = (1 - SHARE) * weights
    careful[scaled] += SHARE
    return careful / (1 + MORE)


def _spread(folds: Sequence[FoldModels], weights: np.ndarray) -> float:
    """The standard deviation of log q of held-out rows, q their squared distances. One row alone changes it little."""
    logs = []
    for fold in folds:
        P = sum(share * member for share, member in zip(weights, fold.members, strict=True))
        q = np.einsum("ij,ij->i", fold.rows @ P, fold.rows)
        logs.append(np.log(np.maximum(q, np.finfo(np.float64).tiny)))
    return float(np.concatenate(logs).std())
