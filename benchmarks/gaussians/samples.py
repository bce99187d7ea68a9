"""Rows for the comparison of regularised covariances and classifiers: split after split, data that installs."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

FASHION = Path("/usr/share/datasets/fashion-mnist")  # apt install dataset-fashion-mnist
COLUMNS = {"fashion": 784, "patches": 64, "AR(1)": 120, "factors": 100, "cancer": 30, "wine": 13}
COLUMNS |= {"raw cancer": 30, "raw wine": 13}  # in their own units
FIRST = 100  # seeds below were used in development
TEST = 2000  # rows to score


class Split(NamedTuple):
    """Rows to fit and rows to score, and their classes where there are any."""

    train: np.ndarray
    test: np.ndarray
    y: np.ndarray | None = None
    right: np.ndarray | None = None


@functools.cache
def fashion(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (60000, 784) and classes."""
    images, labels = (
        gzip.decompress((folder / f"train-{what}-ubyte.gz").read_bytes())
        for what in ("images-idx3", "labels-idx1")
    )
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784), np.frombuffer(
        labels, np.uint8, offset=8
    )


@functools.cache
def _patches() -> np.ndarray:
    """8 × 8 grey patches of scikit-learn's two photographs, shape (40000, 64)."""
    rng, out = np.random.default_rng(0), []
    for image in datasets.load_sample_images().images:
        grey = image.mean(2) / 255
        corners = rng.integers(0, np.array(grey.shape) - 8, (20000, 2))
        out += [grey[i : i + 8, j : j + 8].ravel() for i, j in corners]
    return np.array(out)


def density_split(name: str, n_samples: int, seed: int, folder: Path) -> Split | None:
    """N rows to fit and others to score; None where the data has not so many."""
    rng = np.random.default_rng(seed)
    total = n_samples + TEST
    if name == "AR(1)":
        z = rng.standard_normal((total, 120))
        for i in range(1, 120):
            z[:, i] = 0.8 * z[:, i - 1] + 0.6 * z[:, i]
        X = z
    elif name == "factors":
        W, psi = rng.standard_normal((100, 5)), rng.uniform(0.2, 2, 100)
        X = rng.standard_normal((total, 5)) @ W.T + rng.standard_normal((total, 100)) * np.sqrt(psi)
    elif name == "fashion":
        pixels = fashion(folder)[0]
        X = pixels[rng.permutation(len(pixels))[:total]]
        X = (X + rng.random(X.shape)) / 256
    elif name == "patches":
        X = _patches()[rng.permutation(len(_patches()))[:total]]
    else:
        X = _table(name)[0]
        X = X[rng.permutation(len(X))]
    return Split(X[:n_samples], X[n_samples:]) if len(X) >= n_samples + 30 else None


def class_split(name: str, n_samples: int, seed: int, folder: Path) -> Split:
    """Rows with classes, stratified."""
    if name == "fashion":
        X, y = fashion(folder)
        kept = np.random.default_rng(seed).permutation(len(X))[: n_samples + TEST]
        X, y = X[kept] / 255, y[kept].astype(np.int64)
    else:
        X, y = _table(name)
    train, test, y_train, y_test = train_test_split(X, y, train_size=n_samples, stratify=y, random_state=seed)
    return Split(train, test, y_train, y_test)


def _table(name: str) -> tuple[np.ndarray, np.ndarray]:
    load = {
        "digits": datasets.load_digits,
        "cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
    }
    X, y = load[name.removeprefix("raw ")](return_X_y=True)
    if name.startswith("raw "):
        return X, y
    return (X / 16 if name == "digits" else X / X.std(0)), y
