"""Matrices and rotations for the tests of this folder."""

import numpy as np


def covariance(n, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, n + 5))
    return X @ X.T / n


def random_pairs(n, count, seed=0):
    """Pairs (count, 2) and angles; none where n = 1."""
    generator = np.random.default_rng(seed)
    if n == 1:
        return np.zeros((0, 2), np.int64), np.zeros(0)
    pairs = np.array([generator.permutation(n)[:2] for _ in range(count)], dtype=np.int64)
    return pairs, generator.uniform(-np.pi, np.pi, count)


def scrambled_kernel(side):
    """exp(−distance/4) on a grid whose points are numbered at random: every row has its largest entry several times."""
    x = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    x = x[np.random.default_rng(0).permutation(side**2)].astype(float)
    return np.exp(-np.linalg.norm(x[:, None] - x, axis=-1) / 4.0)


def kernel_of_points(n, seed=0):
    """exp(−5·distance) of random points in a square."""
    x = np.random.default_rng(seed).random((n, 2))
    return np.exp(-5.0 * np.linalg.norm(x[:, None] - x, axis=-1))
