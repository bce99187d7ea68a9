"""What the targets "inverse" and "likelihood" gain over "matrix": parts of the benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.datasets import load_digits

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.compare import FIRST
from benchmarks.fitting.quality import cost
from swallowtail import datasets
from swallowtail.fitting import rivals
from swallowtail.metrics import error_angle

RIDGE = 0.01  # of the mean eigenvalue, added where a matrix is singular or nearly


def matrices(seed: int) -> dict[str, np.ndarray]:
    """Invertible ones; RIDGE marks those that needed help."""
    return {
        "n_mu=5": st.random_symmetric(64, 5, seed),
        "n_mu=32": st.random_symmetric(64, 32, seed),
        "n_mu=64": st.random_symmetric(64, 64, seed),
        "sensor heat kernel": datasets.sensor_heat_kernel(200, seed=seed),
        "sensor Laplacian + 0.1": datasets.sensor_laplacian(256, seed=seed) + 0.1 * np.eye(256),
        "digits + ridge": ridge(datasets.digits_covariance()),
        "RBF 8×8 + ridge": ridge(datasets.grid_kernel((8, 8), "rbf", 1.5)),
        "exponential 16×16": datasets.grid_kernel((16, 16), "exponential", 4.0, scramble=seed),
    }


def ridge(H: np.ndarray) -> np.ndarray:
    return H + RIDGE * np.trace(H) / len(H) * np.eye(len(H))


def inverse(quick: bool) -> list[Row]:
    """The angle of H⁻¹ and the iterations of conjugate gradients, by target."""
    rows = []
    for seed in range(FIRST, FIRST + (1 if quick else 5)):
        for matrix, H in matrices(seed).items():
            n, exact = len(H), np.linalg.inv(H)
            head: Row = {"part": "inverse", "matrix": matrix, "n": n, "seed": seed}
            rows.append(head | {"contender": "no preconditioner", "cg_iterations": iterations(H, None, seed)})
            diagonal = 1 / np.diagonal(H)
            jacobi = iterations(H, lambda x, d=diagonal: d * x, seed)
            rows.append(head | {"contender": "diagonal preconditioner", "cg_iterations": jacobi})
            K = 800 if n == 200 else None
            for target in ("matrix", "inverse"):
                result, wall, cpu = timed(
                    lambda H=H, t=target, K=K, s=seed: st.fit_symmetric(H, target=t, n_rotations=K, seed=s)
                )
                operator = result.operator.inverse()
                row = {"contender": f"target {target}", "seconds": wall, "cpu_seconds": cpu}
                row |= cost(operator) | {"angle": error_angle(exact, operator, seed=seed)}
                rows.append(head | row | {"cg_iterations": iterations(H, operator.__matmul__, seed)})
            rank = round((cost(operator)["floats"] - 1) / (n + 1))
            cut = rivals.low_rank(exact, [rank])[rank]
            row = {"contender": "c·I + low rank of the inverse, equal floats", "rank": rank}
            row |= {"angle": error_angle(exact, cut, seed=seed)}
            positive = cut.d > 0 and float((cut.w + cut.d).min(initial=1.0)) > 0
            if positive:
                row |= {"cg_iterations": iterations(H, lambda x, B=cut: (B @ x[:, None])[:, 0], seed)}
            rows.append(head | row)
    return rows


def iterations(H: np.ndarray, precondition: Any, seed: int) -> int:
    """Conjugate gradients to a relative residual of 1e-6; at most 10 n."""
    count, n = 0, len(H)

    def one_more(_: np.ndarray) -> None:
        nonlocal count
        count += 1

    M = None if precondition is None else LinearOperator((n, n), matvec=lambda x: precondition(x.ravel()))
    cg(H, np.random.default_rng(seed).standard_normal(n), rtol=1e-6, maxiter=10 * n, M=M, callback=one_more)
    return count


def likelihood(quick: bool) -> list[Row]:
    """Mean log-likelihood of held-out data under N(mean, Q D Qᵀ), by target."""
    rows = []
    for seed in range(FIRST, FIRST + (1 if quick else 3)):
        for matrix, (train, test) in samples(seed, quick or seed > FIRST).items():
            mean, n = train.mean(0), train.shape[1]
            S, T = ridge(np.cov(train.T)), (test - mean).T @ (test - mean) / len(test)
            head: Row = {"part": "likelihood", "matrix": matrix, "n": n, "seed": seed, "samples": len(train)}
            values, vectors = np.linalg.eigh(S)
            full = gaussian(values, np.einsum("ij,ij->j", vectors, T @ vectors))
            rows.append(head | {"contender": "sample covariance + ridge", "log_likelihood": full})
            diagonal = gaussian(np.diagonal(S), np.diagonal(T))
            rows.append(head | {"contender": "diagonal", "log_likelihood": diagonal})
            for target in ("matrix", "likelihood"):
                result, wall, cpu = timed(lambda S=S, t=target, s=seed: st.fit_symmetric(S, target=t, seed=s))
                operator = result.operator
                Q = operator.rotation.to_dense().numpy()
                row = {"contender": f"target {target}", "seconds": wall, "cpu_seconds": cpu}
                row |= cost(operator) | {
                    "method": result.method,
                    "angle": error_angle(S, operator, seed=seed),
                }
                row |= {
                    "log_likelihood": gaussian(operator.eigenvalues.numpy(), np.einsum("ij,ij->j", Q, T @ Q))
                }
                rows.append(head | row)
    return rows  # fmt: skip


def gaussian(d: np.ndarray, energy: np.ndarray) -> float:
    """Mean log-density where the covariance has eigenvalues d and the data has ``energy`` along each, per dimension."""
    return float(-0.5 * np.mean(np.log(2 * np.pi * d) + energy / d))


def samples(seed: int, small: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Training and held-out data: drawn from the matrices above, and images split in two."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, H in matrices(seed).items():
        if "digits" not in name:
            n = len(H)
            X = rng.standard_normal((20 * n, n)) @ np.linalg.cholesky(ridge(H)).T
            found[name.removesuffix(" + ridge")] = (X[: 10 * n], X[10 * n :])
    X = rng.permutation(load_digits().data + rng.random((1797, 64)))  # dequantised
    found["digits"] = (X[:900], X[900:])
    if not small:
        images = datasets.mnist_images()[0][:5000] * 255
        X = rng.permutation((images + rng.random(images.shape)) / 256)
        found["MNIST"] = (X[:2500], X[2500:])
    return found
