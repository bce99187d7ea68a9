"""Heat on a graph: a fast graph Fourier transform, and one fit for many times.

python examples/heat.py [--output demo-output]
"""

from __future__ import annotations

import numpy as np
import torch
from common import OURS, RIVAL, output_folder, save
from matplotlib.figure import Figure

import swallowtail as st
from swallowtail.metrics import error_angle

N, RADIUS = 240, 0.13


def sensor_graph(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in a square, joined where they are near; the places and the Laplacian."""
    places = np.random.default_rng(seed).uniform(size=(N, 2))
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    weights = np.where((distances < RADIUS) & (distances > 0), np.exp(-((distances / 0.07) ** 2)), 0)
    return places, np.diag(weights.sum(0)) - weights


def main() -> None:
    """Fit L once, or exp(−tL) for every t; compare the angles."""
    folder = output_folder(__doc__)
    places, L = sensor_graph(0)
    values, vectors = np.linalg.eigh(L)
    times = [0.2, 0.5, 1.0, 2.0, 5.0]
    once = st.fit_symmetric(L, n_rotations=2400).operator
    angles: dict[str, list[float]] = {"one fit of L, then exp": [], "a fit of exp(−tL)": []}
    for t in times:
        true = (vectors * np.exp(-t * values)) @ vectors.T
        heat = once.function(lambda d, t=t: torch.exp(-t * d.clamp(min=0)))
        angles["one fit of L, then exp"].append(error_angle(true, heat))
        angles["a fit of exp(−tL)"].append(st.fit_symmetric(true, n_rotations=2400).angle)
    for name, found in angles.items():
        print(f"{name:24s}", "  ".join(f"t={t}: {a:.1f}°" for t, a in zip(times, found, strict=True)))

    source = np.eye(N)[np.argmin(np.abs(places - 0.5).sum(1))]
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    spread = once.function(lambda d: torch.exp(-5 * d.clamp(min=0))) @ source
    true = (vectors * np.exp(-5 * values)) @ (vectors.T @ source)
    for axis, heat, title in ((first, true, "exp(−5L), exact"), (second, spread, "from 2400 rotations")):
        dots = axis.scatter(*places.T, c=heat, s=14, cmap="inferno", vmin=0, vmax=true.max())
        axis.set(xticks=[], yticks=[], title=title, aspect="equal")
    figure.colorbar(dots, ax=[first, second], label="heat", shrink=0.8)
    for (name, found), colour in zip(angles.items(), (RIVAL, OURS), strict=True):
        third.plot(times, found, "o-", color=colour, label=name)
    third.set(xlabel="time t", ylabel="angle, degrees", title="angle of exp(−tL)", ylim=(0, None))
    third.legend()
    save(figure, folder / "heat.png")


if __name__ == "__main__":
    main()
