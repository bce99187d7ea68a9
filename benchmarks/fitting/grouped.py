"""Rounds of groups against free pairs, with as many rotations: ``python -m benchmarks.fitting.grouped``.

It prints angles in degrees, the difference in per cent, processor seconds, and how many rows of a tile a kernel loads
per rotation. Free pairs, one by one, load two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

import swallowtail as st
from swallowtail import datasets
from swallowtail.fitting.core.records import DenseFit
from swallowtail.fitting.methods.grouped import fit_grouped
from swallowtail.fitting.methods.pairs import fit_pairs

SHAPES = ((16, 16), (32, 8), (32, 16))  # coordinates per group, rounds


def matrices() -> Iterator[tuple[str, np.ndarray, int, int]]:
    """Name, matrix, rotations, and how many seeds of the fit to average over: small fits vary by some per cent."""
    for large in (5, 32, 64):
        for seed in (101, 102, 103):
            yield f"n_mu={large}, seed {seed}", np.asarray(st.random_symmetric(64, large, seed)), 192, 6
    yield "digits", datasets.digits_covariance(), 192, 6
    for side, seeds in ((8, 6), (16, 2)):
        for kind, length in (("rbf", 0.15), ("exponential", 0.5)):
            H = datasets.grid_kernel((side, side), kind, length * side)
            yield f"{kind} {side}×{side}", H, st.Butterfly(side**2).n_rotations, seeds
    yield "sensor heat kernel", datasets.sensor_heat_kernel(200, seed=1), 800, 2
    yield "MNIST", datasets.mnist_covariance()[0], 3920, 1


def mean_of(fit: Callable[[int], DenseFit], H: np.ndarray, seeds: int) -> tuple[float, float, float]:
    """Angle, processor seconds, and rows loaded per rotation where there are groups."""
    angles, rows, start = [], [], time.process_time()
    fits = [fit(seed) for seed in range(seeds)]
    seconds = (time.process_time() - start) / seeds
    for found in fits:
        rotation = st.Rotation(found.wiring, torch.from_numpy(found.angles))
        operator = st.SymmetricOperator(rotation, torch.from_numpy(found.eigenvalues))
        angles.append(st.error_angle(H, operator, seed=0))
        if isinstance(found.wiring, st.Grouped):
            touched = sum(len(group) for groups in found.wiring.groups for group in groups)
            rows.append(touched / max(1, found.wiring.n_rotations))
    return float(np.mean(angles)), seconds, float(np.mean(rows)) if rows else 2.0


def main() -> None:
    fit_grouped(np.eye(3) + 1, 3)  # compile
    for name, H, K, seeds in matrices():
        free, seconds, _ = mean_of(lambda seed, H=H, K=K: fit_pairs(H, K, seed=seed), H, seeds)
        line = f"{name:20s} K={K:5d} pairs {free:6.2f} ({seconds:.2f} s)"
        for size, rounds in SHAPES:
            fit = lambda seed, H=H, K=K, size=size, rounds=rounds: fit_grouped(
                H, K, size=size, n_rounds=rounds, seed=seed
            )
            angle, seconds, rows = mean_of(fit, H, seeds)
            change = 100 * (angle / free - 1)
            line += f" | {size}×{rounds} {angle:6.2f} {change:+5.1f} % ({seconds:.2f} s, {rows:.2f} rows)"
        print(line, flush=True)


if __name__ == "__main__":
    main()
