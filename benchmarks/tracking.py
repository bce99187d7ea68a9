"""How well `Tracker` follows a matrix that turns: angle(Ĥ_t, H_t) against the speed of drift.

    PYTHONPATH=src python benchmarks/tracking.py

H_t = R_t Λ R_tᵀ with R_t = exp(t A) R_0 and A a random antisymmetric matrix, scaled so that one update turns
a random vector by ``speed`` degrees (root mean square). Each run settles on H_0, then drifts; the angle is
the mean over the second half of the drift. ``frozen_angle`` is what the settled Ĥ_0 reaches meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
from scipy.linalg import expm
from tqdm import tqdm

from swallowtail.datasets import random_symmetric
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.metrics import error_angle

SPEEDS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # degrees an update
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


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """One row for every rate, seed and speed."""
    settings = [(f"{rate}", {"rate": rate}) for rate in RATES]
    settings += [(f"normalized {kappa}", {"normalized_step": kappa}) for kappa in NORMALIZED]
    common = {
        "n": options.n,
        "n_large": options.n_large,
        "settle": options.settle,
        "updates": options.drift,
        "machine": f"{platform.machine()} {_cpu()}",
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}",
        "command": f"python benchmarks/tracking.py {' '.join(sys.argv[1:])}".strip(),
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


def _cpu() -> str:
    """The processor's name where Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def main() -> None:
    """Write the rows as they come, so that a killed run leaves what it has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--n-large", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settle", type=int, default=20_000, help="updates on the matrix at rest")
    parser.add_argument("--drift", type=int, default=5_000, help="updates while it turns")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(__file__).parent / "results" / "tracking.csv"
    )
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", newline="") as file:
        writer = None
        for row in rows(options):
            writer = writer or csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
