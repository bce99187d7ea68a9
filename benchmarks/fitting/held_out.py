"""Matrices that development did not use: kernels, graphs, factor and market models, images, Hessians, small tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from swallowtail import datasets

SEED = 9400  # of all matrices that are drawn


def held_out(quick: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Name and matrix."""
    makers = (_kernels, _graphs, _markets, _images, _tables, _larger)
    for make in makers:
        for index, found in enumerate(make(np.random.default_rng(SEED))):
            if not quick or index == 0:
                yield found


def _kernels(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """On random points, in random order."""
    for kind, dimensions, n, length in (
        ("exponential", 1, 80, 0.2),
        ("exponential", 2, 100, 0.3),
        ("exponential", 3, 80, 0.5),
        ("Matérn 3/2", 2, 100, 0.2),
        ("Matérn 3/2", 5, 80, 1.0),
        ("RBF", 1, 60, 0.05),
        ("RBF", 2, 100, 0.1),
    ):
        yield f"{kind}, {dimensions}-D, n={n}", _kernel(generator, kind, dimensions, n, length)


def _kernel(generator: np.random.Generator, kind: str, dimensions: int, n: int, length: float) -> np.ndarray:
    points = generator.uniform(size=(n, dimensions))
    t = np.linalg.norm(points[:, None] - points, axis=-1) / length
    root = np.sqrt(3.0) * t
    forms = {"exponential": np.exp(-t), "Matérn 3/2": (1 + root) * np.exp(-root), "RBF": np.exp(-(t**2) / 2)}
    return np.asarray(forms[kind] + 1e-6 * np.eye(n))


def _graphs(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    for n, time in ((100, 0.3), (100, 3.0)):
        yield f"heat kernel, n={n}, t={time:g}", datasets.sensor_heat_kernel(n, time, seed=SEED)
    yield "graph Laplacian, n=100", datasets.sensor_laplacian(100, seed=SEED)
    edges = np.triu(generator.uniform(size=(80, 80)) < 0.08, 1).astype(float)
    edges += edges.T
    yield "random graph's Laplacian, n=80", np.diag(edges.sum(0)) - edges


def _markets(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Sample covariances of factor models, and one that is exact."""
    for n, rank, days in ((80, 3, 0), (80, 5, 300), (100, 10, 300)):
        F, own = generator.standard_normal((n, rank)), generator.uniform(0.5, 3.0, n)
        S = F @ F.T + np.diag(own)
        if days:
            returns = generator.multivariate_normal(np.zeros(n), S, days)
            S = np.cov(returns, rowvar=False)
        yield f"factor model, n={n}, {rank} factors, {days or 'all'} days", S
    n, sectors = 90, 8
    sector = np.eye(sectors)[generator.integers(0, sectors, n)] * generator.uniform(0.3, 1.0, (n, 1))
    beta = generator.uniform(0.5, 1.5, (n, 1))
    S = beta @ beta.T + sector @ sector.T + np.diag(generator.uniform(0.2, 1.0, n))
    returns = generator.multivariate_normal(np.zeros(n), S, 300)
    yield "market with sectors, n=90", np.corrcoef(returns, rowvar=False)


def _images(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    from sklearn.datasets import load_digits, load_sample_image

    digits = load_digits()
    for digit in (3, 8):
        yield f"covariance of digit {digit}", np.cov(digits.data[digits.target == digit], rowvar=False)
    yield "patches of a photograph, 10×10", _patches(generator, load_sample_image("china.jpg"), 10)


def _patches(generator: np.random.Generator, image: np.ndarray, side: int) -> np.ndarray:
    """The covariance of square patches."""
    grey = image.mean(-1) / 255.0
    corners = generator.integers(0, [grey.shape[0] - side, grey.shape[1] - side], (4000, 2))
    patches = np.stack([grey[i : i + side, j : j + side].ravel() for i, j in corners])
    return np.cov(patches, rowvar=False)


def _tables(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Correlations of small tables, and Hessians of logistic regressions on them."""
    from sklearn import datasets as tables

    for name in ("breast_cancer", "wine", "diabetes"):
        found = getattr(tables, f"load_{name}")()
        X = (found.data - found.data.mean(0)) / found.data.std(0)
        yield f"correlations of {name}", np.corrcoef(X, rowvar=False)
        if name == "diabetes":
            continue
        w = generator.standard_normal(X.shape[1]) / X.shape[1] ** 0.5
        p = 1.0 / (1.0 + np.exp(-X @ w))
        yield (
            f"Hessian of a logistic regression, {name}",
            (X.T * (p * (1 - p))) @ X / len(X) + 1e-3 * np.eye(X.shape[1]),
        )
    X = tables.load_digits().data / 16.0
    logits = X @ (generator.standard_normal((64, 10)) / 4)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    H = sum(
        np.kron((np.diag(q) - np.outer(q, q))[:1, :1], np.outer(x, x))
        for q, x in zip(p[:600], X[:600], strict=True)
    )
    yield "Hessian of a softmax regression, one class", H / 600 + 1e-3 * np.eye(64)


def _larger(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Some of each kind, with n from 200 to 300."""
    from sklearn.datasets import load_sample_image

    for kind, dimensions, n, length in (("Matérn 3/2", 2, 300, 0.15), ("exponential", 3, 200, 0.4)):
        yield f"{kind}, {dimensions}-D, n={n}", _kernel(generator, kind, dimensions, n, length)
    yield "heat kernel, n=256, t=1", datasets.sensor_heat_kernel(256, 1.0, seed=SEED)
    yield "patches of a flower, 15×15", _patches(generator, load_sample_image("flower.jpg"), 15)
    n, rank = 250, 8
    F, own = generator.standard_normal((n, rank)), generator.uniform(0.5, 3.0, n)
    returns = generator.multivariate_normal(np.zeros(n), F @ F.T + np.diag(own), 750)
    yield "factor model, n=250, 8 factors, 750 days", np.cov(returns, rowvar=False)
    walk = generator.standard_normal((1000, n)).cumsum(1) + 3 * generator.standard_normal((1000, n))
    yield "noisy random walks, n=250", np.cov(walk, rowvar=False)
