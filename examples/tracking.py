"""Follow a covariance that moves: a Tracker beside one fit that is never renewed.

python examples/tracking.py [--output demo-output]
"""

from __future__ import annotations

import numpy as np
from common import OURS, RIVAL, output_folder, save
from matplotlib.figure import Figure
from scipy.linalg import expm

import swallowtail as st
from swallowtail.metrics import error_angle

N, STEPS = 64, 300


def main() -> None:
    """A matrix turns slowly; every step shows 16 products with it."""
    folder = output_folder(__doc__)
    rng = np.random.default_rng(0)
    H = st.random_symmetric(N, 8, seed=0)
    A = rng.standard_normal((N, N))
    step = expm(0.004 * (A - A.T) / np.linalg.norm(A - A.T, 2))  # a small rotation
    first = st.fit_symmetric(H, wiring="butterfly", depth=4).operator
    rotation = first.rotation
    tracker = st.Tracker(N, rotation.wiring, angles=rotation.angles, eigenvalues=first.eigenvalues)
    angles: dict[str, list[float]] = {"tracked": [], "first fit, kept": []}
    for _ in range(STEPS):
        H = step @ H @ step.T
        X = rng.standard_normal((N, 16))
        tracker.update(X, H @ X)
        angles["tracked"].append(error_angle(H, tracker.operator, n_probes=200))
        angles["first fit, kept"].append(error_angle(H, first, n_probes=200))
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for (name, found), colour in zip(angles.items(), (OURS, RIVAL), strict=True):
        print(f"{name:16s} {found[0]:.1f}° at first, {found[-1]:.1f}° at the end")
        axis.plot(found, color=colour, label=name)
    axis.set(xlabel="step", ylabel="angle, degrees", title="a matrix that turns slowly", ylim=(0, None))
    axis.legend()
    save(figure, folder / "tracking.png")


if __name__ == "__main__":
    main()
