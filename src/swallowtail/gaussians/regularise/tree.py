"""Chow and Liu's tree: the Gaussian that keeps the correlations of n − 1 pairs of columns and no others."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

LARGEST = 1 - 1e-6  # correlation of two equal columns


def tree_precision(S: np.ndarray, n_samples: float) -> np.ndarray:  # shape: (n, n)
    """Σ⁻¹ of the tree that fits N rows with covariance S (n, n) best, positive definite for any S.

    Among all trees it has the largest sum of −½ log(1 − ρ²), the information that neighbours have of each other
    (Chow & Liu, 1968). Each ρ is taken N/(N + 1) times: few rows make them too large.
    """
    deviations = np.sqrt(np.diagonal(S))
    correlations = S / np.outer(deviations, deviations)
    np.fill_diagonal(correlations, 0.0)
    np.clip(correlations * (n_samples / (n_samples + 1)), -LARGEST, LARGEST, out=correlations)
    information = -0.5 * np.log1p(-correlations * correlations)
    # scipy takes 0 for no edge, and looks for the least sum.
    edges = minimum_spanning_tree(information.max() + 1.0 - information - np.eye(len(S))).tocoo()
    i, j = edges.row, edges.col
    i, j = i[i != j], j[i != j]
    rho = correlations[i, j]
    P = np.zeros_like(S)
    P[i, j] = P[j, i] = -rho / (1 - rho * rho)
    ones = 1.0 + np.bincount(np.concatenate([i, j]), np.tile(rho * rho / (1 - rho * rho), 2), len(S))
    P[np.diag_indices(len(S))] = ones
    return P / np.outer(deviations, deviations)
