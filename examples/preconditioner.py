"""Conjugate gradients with a fit as preconditioner, by either target, beside the plain ones.

python examples/preconditioner.py [--output demo-output]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import OURS, PLAIN, RIVAL, output_folder, save
from matplotlib.figure import Figure
from scipy.sparse.linalg import LinearOperator, cg

import swallowtail as st

N, NOISE = 400, 1e-2
OTHER = "#56B4E9"


def main() -> None:
    """Solve (K + noise) x = b for a kernel K; count the iterations."""
    folder = output_folder(__doc__)
    points = np.random.default_rng(0).uniform(size=(N, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    H = np.exp(-distances / 0.2) + NOISE * np.eye(N)
    fits = {
        target: st.fit_symmetric(H, target=target, n_rotations=4 * N * 9 // 2)
        for target in ("inverse", "likelihood")
    }
    values, vectors = np.linalg.eigh(H)
    rank = fits["likelihood"].floats // (N + 1)  # of as many numbers
    scale = values[-rank - 1]

    def low_rank(x: np.ndarray) -> np.ndarray:
        z = vectors[:, -rank:].T @ x
        return x / scale + vectors[:, -rank:] @ ((1 / values[-rank:] - 1 / scale) * z)

    ways: dict[str, tuple[Any, str]] = {
        "none": (None, PLAIN),
        f"low rank {rank}, equal floats": (LinearOperator((N, N), low_rank), RIVAL),
    }
    for (target, fit), colour in zip(fits.items(), (OTHER, OURS), strict=True):
        inverse = fit.operator.inverse(epsilon=NOISE)
        name = f'{fit.operator.rotation.n_rotations} rotations, "{target}"'
        ways[name] = (inverse.to_scipy(), colour)
    b = np.random.default_rng(1).standard_normal(N)
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, (M, colour) in ways.items():
        iterates: list[np.ndarray] = []
        cg(H, b, rtol=1e-8, maxiter=400, M=M, callback=lambda x, kept=iterates: kept.append(x.copy()))
        sizes = [np.linalg.norm(H @ x - b) for x in iterates]
        print(f"{name:32s} {len(sizes)} iterations")
        axis.semilogy(sizes, color=colour, label=f"{name}: {len(sizes)}")
    axis.set(
        xlabel="iteration of conjugate gradients", ylabel="residual", title=f"exponential kernel, n = {N}"
    )
    axis.legend()
    save(figure, folder / "preconditioner.png")


if __name__ == "__main__":
    main()
