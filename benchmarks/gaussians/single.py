"""One Gaussian: fitted beside the analytic shrinkages, and fitted in pieces."""

from __future__ import annotations

import numpy as np
from sklearn.covariance import OAS, LedoitWolf
from tqdm import tqdm

from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.gaussians.mixture import FULL, density_row
from benchmarks.gaussians.rivals import N, dense_density
from swallowtail.datasets import mnist_images
from swallowtail.gaussians.covariance import GivensCovariance
from swallowtail.metrics import error_angle


def dequantised(path: str | None, count: int | None, seed: int = 0) -> np.ndarray:
    """MNIST in a random order, uniform noise added to every byte: a density over [0, 1]."""
    images, _ = mnist_images(path)
    rng = np.random.default_rng(seed)
    x = np.round(images[rng.permutation(len(images))[:count]] * 255)
    return (x + rng.random(x.shape)) / 256


def single(path: str | None) -> list[Row]:
    """One Gaussian: ours beside the analytic shrinkages."""
    X = dequantised(path, 5000)
    train, test = X[:4000], X[4000:]
    rows: list[Row] = []
    for name, estimator in (("Ledoit-Wolf", LedoitWolf()), ("OAS", OAS())):
        fitted, _, seconds = timed(lambda e=estimator: e.fit(train))
        density, _ = dense_density(fitted.covariance_)
        logs, _, scoring = timed(lambda d=density, f=fitted: d(test - f.location_))
        rows.append(density_row("single", name, "", logs, FULL, 4 * FULL, seconds, scoring))
    lean = ({"n_rotations": k, "rank_one": False} for k in (3920, 13_800))
    for settings in ({}, *lean):
        model, _, seconds = timed(lambda s=settings: GivensCovariance(**s).fit(train))
        model.score_samples(test)
        logs, _, scoring = timed(lambda m=model: m.score_samples(test))
        terms = model.rank_ * (N + 1)
        floats, size = model.n_rotations_ + terms + 2 * N, 8 * model.n_rotations_ + 4 * terms + 8 * N
        about = f"K={model.n_rotations_} terms={model.rank_} noise={model.noise_:.3g}"
        rows.append(density_row("single", "GivensCovariance", about, logs, floats, size, seconds, scoring))
    return rows


def stream(path: str | None) -> list[Row]:
    """Against one fit on all rows: chunks through partial_fit, and for scale what half of the rows give.

    The stream has another random_state, and its rows come in another order.
    """
    X = dequantised(path, None).astype(np.float32)
    batch = GivensCovariance(random_state=0).fit(X)
    order = np.random.default_rng(1).permutation(len(X))
    model = GivensCovariance(random_state=1)
    for part in tqdm(np.array_split(X[order], 60), desc="stream"):
        model.partial_fit(part)
    half = GivensCovariance(random_state=0).fit(X[: len(X) // 2])
    rows: list[Row] = []
    for task, name, fitted in (
        ("stream", "partial_fit, other seed and order", model),
        ("half", "fit, half of the rows", half),
    ):
        angle = error_angle(batch.covariance_, fitted.covariance_)
        about = f"K={fitted.n_rotations_} terms={fitted.rank_} noise={fitted.noise_:.3g}"
        tqdm.write(f"{name}: {angle:.4f}° from the batch fit, {about}")
        rows.append({"task": task, "method": name, "setting": about, "rows": len(X), "angle": angle})
    return rows
