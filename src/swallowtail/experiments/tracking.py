"""The basis of section 4: following an H that moves, from one product per step.

The paper: because Ĥ is learned, it adapts when H changes slowly. Here H_t = R_t Λ R_tᵀ with R_t = exp(t A) R_0, A a
random antisymmetric matrix scaled so that one step turns a random vector by ``speed`` degrees (root mean square), and
each step shows one sample (x, H_t x). Beside the tracker: the fit it started from, left as it was; fits from scratch
to the latest samples, ours and c·I + low rank; and Algorithm 1 begun anew on them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import expm

from swallowtail.datasets import random_symmetric
from swallowtail.experiments.common import plots, select
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.fits import as_operator
from swallowtail.experiments.common.rows import Row, collect
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.products import fit_samples
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.fitting.rivals import equal_ranks
from swallowtail.metrics import error_angle

TITLE = "Tracking a matrix that moves"
TRACKER, CHOSEN, LEFT = "tracker", "tracker on chosen pairs", "constant fit"
ANEW = "Algorithm 1 from scratch"
RATE = 0.008  # the best of 0.002, 0.004 and 0.008 at speeds that can be followed: benchmarks/tracking
N_CHECKS = 4  # angles per run, over the second half of the drift


@dataclass(frozen=True)
class Config:
    """How much to run."""

    speeds: tuple[float, ...]  # degrees per step
    windows: tuple[int, ...]  # samples a fit from scratch may use
    seeds: int
    settle: int  # steps on H_0 before it moves
    steps: int  # while it moves
    n: int = 64
    n_large: int = 5
    seed: int = 600


QUICK = Config(speeds=(0.0, 0.003, 0.01, 0.03, 0.1), windows=(64,), seeds=1, settle=12_000, steps=2_000)
FULL = Config(
    speeds=(0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), windows=(64, 256), seeds=3, settle=20_000, steps=4_000
)


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows (speed, method, angle, seed): means over the second half of the drift."""
    tasks: dict[str, Callable[[], list[Row]]] = {
        f"speed {speed} seed {seed}": partial(follow, config, speed, seed)
        for seed in range(config.seed, config.seed + config.seeds)
        for speed in config.speeds
    }
    return collect(tasks, path, "tracking", progress)


def turning(H: np.ndarray, speed: float, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """H_1, H_2, …, each turned by the same small rotation."""
    n = len(H)
    A = rng.standard_normal((n, n))
    A -= A.T
    # A random unit vector is turned by ‖A‖_F/√n radians, root mean square.
    drift = expm(A * (np.radians(speed) * np.sqrt(n) / np.linalg.norm(A)))
    while True:
        H = drift @ H @ drift.T
        yield H


def settled(config: Config, seed: int) -> dict[str, Tracker]:
    """Trackers that know H_0: the paper's, and one on pairs chosen by a fit to its first products."""
    return {name: copy.deepcopy(tracker) for name, tracker in _settled(config, seed).items()}


@lru_cache(maxsize=1)
def _settled(config: Config, seed: int) -> dict[str, Tracker]:
    n, rng = config.n, np.random.default_rng([seed, 0])
    H = random_symmetric(n, config.n_large, seed)
    X = rng.standard_normal((n, config.settle))
    fit = fit_samples(X[:, :n], H @ X[:, :n], default_budget(n), seed)
    trackers = {
        TRACKER: Tracker(n, rate=RATE, seed=seed),
        CHOSEN: Tracker(n, fit.wiring, rate=RATE, angles=fit.angles, eigenvalues=fit.eigenvalues),
    }
    for x in X.T:
        for tracker in trackers.values():
            tracker.update(x, H @ x)
    return trackers


def follow(config: Config, speed: float, seed: int) -> list[Row]:
    """Settle on H_0, then follow it, and fit the latest samples from scratch now and then."""
    n, rng = config.n, np.random.default_rng([seed, 1])
    H = random_symmetric(n, config.n_large, seed)
    trackers = settled(config, seed)
    left = trackers[TRACKER].operator
    X, Y = np.empty((n, config.steps)), np.empty((n, config.steps))
    checks = np.linspace(config.steps // 2, config.steps - 1, N_CHECKS, dtype=int)
    found: dict[str, list[float]] = {}
    moving = turning(H, speed, rng)
    for step in range(config.steps):
        H = next(moving)
        x = rng.standard_normal(n)
        X[:, step], Y[:, step] = x, H @ x
        for tracker in trackers.values():
            tracker.update(x, Y[:, step])
        if step in checks:
            latest: dict[str, Any] = {name: tracker.operator for name, tracker in trackers.items()}
            latest[LEFT] = left
            for window in config.windows:
                part = slice(max(0, step + 1 - window), step + 1)
                latest |= _from_scratch(X[:, part], Y[:, part], seed)
            for method, operator in latest.items():
                found.setdefault(method, []).append(error_angle(H, operator, 500, seed=step))
    return [
        {"speed": speed, "method": method, "angle": float(np.mean(angles)), "seed": seed, "n": n}
        for method, angles in found.items()
    ]


def _from_scratch(X: np.ndarray, Y: np.ndarray, seed: int) -> dict[str, Any]:
    """What the same samples, and no others, give: our fit, c·I + low rank at equal floats, Algorithm 1."""
    n, m = X.shape
    fit = fit_samples(X, Y, default_budget(n), seed)
    ours = as_operator(fit)
    rank = equal_ranks(ours)["floats"]
    anew = fit_sgd((X, Y), epochs=max(1, 4096 // m), rate=RATE, seed=seed)
    return {
        f"refit, {m} samples": ours,
        f"c·I + low rank, {m} samples": fit.completion.factor.cut(rank),
        f"{ANEW}, {m} samples": as_operator(anew),
    }


def plot(rows: list[Row]) -> Any:
    """Angle against speed."""
    figure, (axes,) = plots.figure(1, 5.6)
    speeds = select.kinds(rows, "speed")
    methods = select.kinds(rows, "method")
    for index, method in enumerate(methods):
        y = [select.mean(rows, "angle", method=method, speed=speed) for speed in speeds]
        plots.line(axes, index, range(len(speeds)), y, method, linestyle="-" if index < 8 else ":")
    axes.set_xticks(range(len(speeds)), [f"{speed:g}" for speed in speeds])
    axes.set(
        xlabel="drift, degrees per step",
        ylabel="angle to H_t, degrees",
        title="following H_t",
        ylim=(0, None),
    )
    plots.legend_below(axes, 1 if len(methods) < 7 else 2)
    return figure


def findings(rows: list[Row]) -> list[Finding]:
    """Up to which speed tracking helps, and what fits from scratch do with the same samples."""
    angle = lambda method, speed: select.mean(rows, "angle", method=method, speed=speed)
    speeds = select.kinds(rows, "speed")
    moving = [s for s in speeds if s > 0]
    followed = [s for s in moving if angle(TRACKER, s) < angle(TRACKER, speeds[0]) + 2]
    worst = max(moving, key=lambda s: angle(LEFT, s) - angle(TRACKER, s))
    ours = f"{angle(TRACKER, worst):.1f}° at {worst:g}° per step, where a constant fit has {angle(LEFT, worst):.1f}°"
    note = f"{angle(TRACKER, speeds[0]):.1f}° at rest"
    note += f"; within 2° of that up to {max(followed):g}° per step" if followed else ""
    result = [Finding("Ĥ adapts when H changes slowly", "it does", ours, note)]
    for method in select.kinds(rows, "method"):
        ours = ", ".join(f"{s:g}: {angle(method, s):.1f}°" for s in speeds)
        result.append(Finding(f"{method}, by drift", "–", ours, "degrees per step: angle to H_t"))
    return result


def text(rows: list[Row]) -> str:
    """Whether tracking or refitting is better, speed by speed."""
    angle = lambda method, speed: select.mean(rows, "angle", method=method, speed=speed)
    others = [m for m in select.kinds(rows, "method") if m not in (TRACKER, CHOSEN, LEFT)]
    best = {s: min(others, key=lambda m: angle(m, s)) for s in select.kinds(rows, "speed")}
    wins = [s for s, m in best.items() if angle(m, s) < angle(TRACKER, s)]
    return (
        f"A fit from scratch to the latest samples is better than the tracker at {len(wins)} of {len(best)} speeds "
        f"({', '.join(f'{s:g}' for s in wins) or 'none'} degrees per step). The tracker stays on the paper's fixed "
        "wiring and learns one sample at a time; a fit chooses its pairs of coordinates anew. The tracker costs one "
        "gradient of L per step and keeps no samples."
    )
