"""Fits from products alone: two parts of the benchmark."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import numpy as np

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.apart import apart
from benchmarks.fitting.compare import seeds
from benchmarks.fitting.quality import cost, quality
from swallowtail import datasets
from swallowtail.fitting.core.completion import complete, probe

LENGTH = 8.0  # of the exponential kernel, in steps of the grid


def products(quick: bool) -> list[Row]:
    """Products alone."""
    rows = []
    for seed in seeds(12, quick):
        H = st.random_symmetric(64, 5, seed)
        for m in (8, 16, 32):
            found = products_rows(lambda X, H=H: H @ X, H, 64, 192, m, seed)
            rows += [{"part": "products", "matrix": "n_mu=5", "max_products": m} | row for row in found]
    if not quick:
        H, _ = datasets.mnist_covariance()
        for seed in seeds(3, quick):
            found = products_rows(lambda X, H=H: H @ X, H, 784, 3920, 64, seed)
            rows += [{"part": "products", "matrix": "MNIST", "max_products": 64} | row for row in found]
    return rows


def products_large(quick: bool) -> list[Row]:
    """The exponential kernel on scrambled grids from 32 products, each in a process of its own."""
    rows: list[Row] = []
    for side, length in ((64, LENGTH), (64, 16.0), (128, LENGTH), (128, 32.0)):
        matrix = f"exponential {side}×{side}, length {length:g}"
        if quick and side > 64:
            continue
        for seed in seeds(24 if side == 64 else 3, quick):
            task = {"task": "products", "side": side, "length": length, "products": 32, "seed": seed}
            answer = apart(task, limit=400)
            stopped = {"n": side * side, "contender": "swallowtail", "note": "stopped after 400 s"}
            found = [stopped] if answer is None else answer["rows"]
            rows += [{"part": "products_large", "matrix": matrix, "max_products": 32} | row for row in found]
    return rows


class GridProduct:
    """Products with grid_kernel((side, side), "exponential", scramble=…) by FFT: no n² numbers anywhere."""

    def __init__(self, side: int, length: float, scramble: int) -> None:
        n = side * side
        # As `grid_kernel` scrambles: rows of the list of points, so position i holds point order[i].
        self.order = np.random.default_rng(scramble).permutation(np.arange(n))
        self.side, self.columns, self.shape = side, 0, (n, n)
        step = np.minimum(np.arange(2 * side), 2 * side - np.arange(2 * side))
        self.transform = np.fft.rfft2(np.exp(-np.hypot(*np.meshgrid(step, step)) / length))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.columns += X.shape[1]
        Y, s = np.empty_like(X), self.side
        for k, x in enumerate(X.T):
            image = np.empty(len(x))
            image[self.order] = x
            padded = np.fft.rfft2(image.reshape(s, s), (2 * s, 2 * s)) * self.transform
            Y[:, k] = np.fft.irfft2(padded)[:s, :s].reshape(-1)[self.order]
        return Y


def products_rows(
    product: Callable[[np.ndarray], np.ndarray], H: Any, n: int, K: int, m: int, seed: int
) -> list[Row]:
    """A fit from m products, and c·I + low rank cut from the completion of as many; both against the true H."""
    columns = 0

    def counted(X: np.ndarray) -> np.ndarray:
        nonlocal columns
        columns += X.shape[1]
        return product(X)

    result, wall, cpu = timed(lambda: st.fit_symmetric(counted, n, n_rotations=K, max_products=m, seed=seed))
    row = {"contender": "swallowtail", "method": result.method, "products": columns, "estimate": result.angle}
    row |= {"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak_mib()}
    rows = [row | cost(result.operator) | quality(H, result.operator, n, seed)]
    factor, wall, cpu = timed(lambda: complete(probe(product, n, m, seed=seed)).factor)
    operator = result.operator
    ranks = {
        "c·I": 0,
        "c·I + low rank, equal floats, same products": (K + n - 1) / (n + 1),
        "c·I + low rank, equal multiply-adds, same products": (operator.multiply_adds - n) / (2 * n),
    }
    for name, rank in ranks.items():
        r = min(len(factor.weights), round(rank))
        row = {"contender": name, "rank": r, "products": m, "seconds": wall, "cpu_seconds": cpu}
        row |= {"floats": r * (n + 1) + 1, "multiply_adds": (2 * r + 1) * n}
        rows.append(row | quality(H, factor.cut(r), n, seed))
    return [{"seed": seed, "n": n} | row for row in rows]


def peak_mib() -> float:
    """The most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
