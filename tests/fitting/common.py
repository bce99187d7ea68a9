"""Matrices that fits are tried on, and what a fit stands for, dense."""

import numpy as np

from swallowtail.fitting.core.product import conjugate


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A + A.T


def low_rank(n, rank, shift, seed=0):
    generator = np.random.default_rng(seed)
    U = np.linalg.qr(generator.standard_normal((n, rank)))[0]
    return shift * np.eye(n) + (U * generator.uniform(1.0, 3.0, rank)) @ U.T


def synthetic(n, n_large, seed):
    """The paper's R Λ Rᵀ: R Haar, λ = |μ|, μ ~ N(0, 0.1²), n_large of them ~ N(1, 0.4²)."""
    generator = np.random.default_rng(seed)
    mu = 0.1 * generator.standard_normal(n)
    mu[generator.permutation(n)[:n_large]] = 1.0 + 0.4 * generator.standard_normal(n_large)
    Q, R = np.linalg.qr(generator.standard_normal((n, n)))
    Q = Q * np.sign(np.diag(R))
    return (Q * np.abs(mu)) @ Q.T


def approximation(fit):
    """Q D Qᵀ, dense: conjugating D by Qᵀ, whose rotations are Q's the other way round."""
    return conjugate(np.diag(fit.eigenvalues), fit.wiring.flat_pairs()[::-1].copy(), -fit.angles[::-1])


def error_angle(H, fit):
    """The mean angle between H x and its approximation, in degrees: the plain formula on fixed x."""
    X = np.random.default_rng(1).standard_normal((len(H), 2000))
    A, B = H @ X, approximation(fit) @ X
    cosines = (A * B).sum(0) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)
    return np.degrees(np.arccos(cosines)).mean()


def relative_error(H, A):
    """‖H − A‖ / ‖H‖, A a matrix or a fit."""
    return np.linalg.norm(H - (A if isinstance(A, np.ndarray) else approximation(A))) / np.linalg.norm(H)


def operator_error(A, result):
    """The same of a result's operator, for numbers of any size."""
    B = result.operator.to_dense().double().numpy()
    scale = np.abs(A).max()
    return np.linalg.norm(A / scale - B / scale) / np.linalg.norm(A / scale)
