"""Settle a tracker on a matrix at rest, then turn the matrix while the tracker follows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from scipy.linalg import expm
from tqdm import tqdm

from benchmarks.common.rows import Row, machine
from swallowtail.datasets import random_symmetric
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.metrics import error_angle

SPEEDS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # degrees per update
RATES = (0.002, 0.004, 0.008)
NORMALIZED = (0.2, 0.5)  # κ of the normalised step, at the default ratio of rates
N_CHECKS = 8  # angles averaged over the second half of the drift


def settle(H: np.ndarray, seed: int, n_updates: int, **options: float) -> Tracker:
    """A tracker that has learnt H at rest."""
    tracker, rng = Tracker(len(H), seed=seed, **options), np.random.default_rng(seed)
    for x in rng.standard_normal((n_updates, len(H))):
        tracker.update(x, H @ x)
    return tracker


def follow(tracker: Tracker, H: np.ndarray, speed: float, seed: int, n_updates: int) -> tuple[float, float]:
    """Turn H while the tracker follows: mean angles of the tracker and of its frozen start, in degrees."""
    n, rng = len(H), np.random.default_rng(seed + 1)
    A = rng.standard_normal((n, n))
    A -= A.T
    # A random unit vector is turned by ‖A‖_F/√n radians, root mean square.
    drift = expm(A * (np.radians(speed) * np.sqrt(n) / np.linalg.norm(A)))
    frozen, followed, left = tracker.operator, [], []
    every = max(1, n_updates // (2 * N_CHECKS))
    for step, x in enumerate(rng.standard_normal((n_updates, n)), start=1):
        H = drift @ H @ drift.T
        tracker.update(x, H @ x)
        if 2 * step > n_updates and step % every == 0:
            followed.append(error_angle(H, tracker.operator, n_probes=500, seed=step))
            left.append(error_angle(H, frozen, n_probes=500, seed=step))
    return float(np.mean(followed)), float(np.mean(left))


def rows(options: argparse.Namespace, command: str) -> Iterator[Row]:
    """One row for every rate, seed and speed."""
    settings = [(f"{rate}", {"rate": rate}) for rate in RATES]
    settings += [(f"normalized {kappa}", {"normalized_step": kappa}) for kappa in NORMALIZED]
    common = {
        "n": options.n,
        "n_large": options.n_large,
        "settle": options.settle,
        "updates": options.drift,
        **machine(),
        "command": command,
    }
    jobs = [(name, kind, 9000 + k) for k in range(options.seeds) for name, kind in settings]
    with tqdm(total=len(jobs) * len(SPEEDS), desc="tracking", unit="run") as bar:
        for name, kind, seed in jobs:
            H = random_symmetric(options.n, options.n_large, seed)
            settled = settle(H, seed, options.settle, **kind).state_dict()
            for speed in SPEEDS:
                tracker = Tracker(options.n, **kind)
                tracker.load_state_dict(settled)
                angle, frozen = follow(tracker, H, speed, seed, options.drift)
                row = {"drift_degrees_per_update": speed, "angle": round(angle, 2)}
                yield {**row, "frozen_angle": round(frozen, 2), "seed": seed, "rate": name, **common}
                bar.update()
