"""Sanity checks of section 3.2: what lies in the class is found.

The paper: if R has the form of a matrix Q_ω it is learned, and L′ reaches zero; so is H = RᵀΛR, and L goes quickly to
zero. Here the angles are hidden, small or uniform in (−π, π). They are sought by Algorithm 1, by L-BFGS on the angles,
and by direct recovery, which needs no start. H = RΛRᵀ is in the class QDQᵀ. The H = RᵀΛR that is printed is not: its
strides run in the opposite order. So it is looked for both ways.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swallowtail.experiments.common import plots, select
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.rows import Row, collect
from swallowtail.fitting.core.alignment import Alignment
from swallowtail.fitting.core.objectives import Objective, Smooth
from swallowtail.fitting.methods.recovery import recover_rotation, recover_symmetric
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.operators.rotation import Rotation
from swallowtail.wiring import Butterfly

TITLE = "Matrices that are such products: are they found?"
FOUND = 0.01  # relative error of a success for Algorithm 1, whose steps leave a little noise
UNIFORM = "uniform"
PRINTED = "RᵀΛR, strides as printed"
KINDS = ("R", "H = RΛRᵀ", "H, two eigenvalues", "RᵀΛR, strides reversed")


@dataclass(frozen=True)
class Config:
    """How much to run."""

    sizes: tuple[int, ...]  # n of the gradient methods
    spreads: tuple[Any, ...]  # of the hidden angles: a standard deviation in radians, or UNIFORM
    trials: int
    epochs: int  # of Algorithm 1
    starts: int  # of L-BFGS: angles zero, and random ones beside
    direct_sizes: tuple[int, ...]
    direct_trials: int
    seed: int = 400


QUICK = Config(
    sizes=(8, 32),
    spreads=(0.1, 0.3, 1.0, UNIFORM),
    trials=2,
    epochs=20,
    starts=4,
    direct_sizes=(8, 32, 128, 512),
    direct_trials=1,
)
FULL = Config(
    sizes=(8, 16, 32, 64),
    spreads=(0.1, 0.3, 1.0, UNIFORM),
    trials=5,
    epochs=30,
    starts=8,
    direct_sizes=(8, 16, 32, 64, 128, 256, 512, 1024),
    direct_trials=3,
)


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows of part "gradient" (n, spread, matrix, method, trial, error) and "direct" (n, matrix, error, seconds)."""
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for n in config.sizes:
        for spread in config.spreads:
            tasks[f"gradient n={n} {spread}"] = partial(_gradient, config, n, spread)
    for n in config.direct_sizes:
        tasks[f"direct n={n}"] = partial(_direct, config, n)
    return collect(tasks, path, "sanity", progress)


def hidden(n: int, spread: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """R in the class with hidden angles of this spread, and eigenvalues |N(0, 1)| for it."""
    rng, wiring = np.random.default_rng(seed), Butterfly(n)
    K = wiring.n_rotations
    angles = rng.uniform(-np.pi, np.pi, K) if spread == UNIFORM else spread * rng.standard_normal(K)
    R = Rotation(wiring, torch.from_numpy(angles)).to_dense().numpy()
    return R, np.abs(rng.standard_normal(n))


def relative_error(A: np.ndarray, fit: Any) -> float:
    """‖A − fit‖_F / ‖A‖_F from dense matrices; a fit without eigenvalues is of A = Q diag(signs)."""
    Q = Rotation(fit.wiring, torch.from_numpy(fit.angles)).to_dense().numpy()
    d = getattr(fit, "eigenvalues", None)
    B = Q * getattr(fit, "signs", 1.0) if d is None else (Q * d) @ Q.T
    return float(np.linalg.norm(A - B) / np.linalg.norm(A))


def _gradient(config: Config, n: int, spread: Any) -> list[Row]:
    rows = []
    for trial in range(config.trials):
        seed = config.seed + trial
        R, values = hidden(n, spread, seed)
        H = (R * values) @ R.T
        zero = np.zeros(Butterfly(n).n_rotations)
        options: dict[str, Any] = {"angles": zero, "epochs": config.epochs, "seed": seed}
        found = {
            ("R", "Algorithm 1"): relative_error(R, fit_sgd(R, loss="rotation", rate=0.016, **options)),
            ("H", "Algorithm 1"): relative_error(H, fit_sgd(H, rate=0.008, **options)),
            ("R", "L-BFGS"): _lbfgs(Alignment(R), config.starts, seed),
            ("H", "L-BFGS"): _lbfgs(Objective(H), config.starts, seed),
        }
        common = {"part": "gradient", "n": n, "spread": spread, "trial": trial}
        rows += [{**common, "matrix": A, "method": how, "error": error} for (A, how), error in found.items()]
    return rows


def _lbfgs(objective: Smooth, starts: int, seed: int) -> float:
    """The least relative error of L-BFGS on the angles, from zero and from random angles."""
    # A stream of its own: the hidden angles came from ``seed``, and must not be drawn again as a start.
    rng, pairs = np.random.default_rng([seed, 1]), Butterfly(objective.n).flat_pairs()
    begin = [np.zeros(len(pairs)), *(rng.uniform(-np.pi, np.pi, len(pairs)) for _ in range(starts - 1))]
    best = min(objective.polish(pairs, angles, 1000, 1e-14)[1] for angles in begin)
    return float(np.sqrt(max(best, 0.0)))


def _direct(config: Config, n: int) -> list[Row]:
    rows: list[Row] = []
    for trial in range(config.direct_trials):
        R, values = hidden(n, UNIFORM, config.seed + 100 + trial)
        for matrix, A, recover in _recoveries(R, values):
            start = time.process_time()
            fit = recover(A)
            seconds = time.process_time() - start
            error = relative_error(A, fit)
            common = {"part": "direct", "n": n, "spread": UNIFORM, "trial": trial, "method": "recovery"}
            rows.append({**common, "matrix": matrix, "error": error, "seconds": round(seconds, 4)})
    return rows


def _recoveries(R: np.ndarray, values: np.ndarray) -> Iterator[tuple[str, np.ndarray, Callable[..., Any]]]:
    """What is hidden, the matrix, and what should find it."""
    symmetric = lambda Q, d: (lambda H: 0.5 * (H + H.T))((Q * d) @ Q.T)
    always = partial(recover_symmetric, give_up=np.inf)  # an answer, however far off
    levels = np.where(np.arange(len(R)) % 3 == 0, 1.0, 0.1)
    yield "R", R, recover_rotation
    yield "H = RΛRᵀ", symmetric(R, values), always
    yield "H, two eigenvalues", symmetric(R, levels), always
    yield "RᵀΛR, strides reversed", symmetric(R.T, values), partial(always, reverse=True)
    if len(R) <= 64:  # it fails, and polishing what cannot be mended takes long
        yield PRINTED, symmetric(R.T, values), always


def plot(rows: list[Row]) -> Any:
    """Relative error of the gradient methods against the hidden angles' spread, and of recovery against n."""
    figure, axes = plots.figure(3, 5.0)
    spreads = select.kinds(rows, "spread", part="gradient")
    sizes = select.kinds(rows, "n", part="gradient")
    for axis, matrix in zip(axes, ("R", "H"), strict=False):
        for index, n in enumerate(sizes):
            for method, style in (("Algorithm 1", "-"), ("L-BFGS", ":")):
                error = [
                    select.median(rows, "error", part="gradient", n=n, spread=s, matrix=matrix, method=method)
                    for s in spreads
                ]
                y = np.maximum(error, 1e-16)
                plots.line(axis, index, range(len(spreads)), y, f"{method}, n = {n}", linestyle=style)
        axis.set(yscale="log", title=f"learning {'R' if matrix == 'R' else 'H = RΛRᵀ'} by gradient")
        axis.set_xticks(range(len(spreads)), [f"sd {s}" if s != UNIFORM else "uniform" for s in spreads])
        axis.set(xlabel="hidden angles, radians", ylabel="relative error (median)", ylim=(1e-17, 10))
    plots.legend_below(axes[1])
    for index, matrix in enumerate((*KINDS, PRINTED)):
        sizes = select.kinds(rows, "n", part="direct", matrix=matrix)
        error = [max(select.values(rows, "error", part="direct", n=n, matrix=matrix)) for n in sizes]
        plots.line(axes[2], index, sizes, error, matrix)
    axes[2].set_xscale("log", base=2)
    axes[2].set(yscale="log", xlabel="n", ylabel="relative error (worst trial)", title="direct recovery")
    plots.legend_below(axes[2], 1)
    return figure


def findings(rows: list[Row]) -> list[Finding]:
    """How often each way finds what is hidden."""
    result = []
    for matrix, claim in (
        ("R", "R in the class is learned, L′ → 0"),
        ("H", "H in the class is learned, L → 0 quickly"),
    ):
        parts = []
        for method in ("Algorithm 1", "L-BFGS"):
            for name, chosen in (("angles sd ≤ 0.3", False), ("uniform angles", True)):
                errors = [
                    row["error"]
                    for row in select.where(rows, part="gradient", matrix=matrix, method=method)
                    if row["n"] > 8 and ((row["spread"] == UNIFORM) if chosen else _small(row["spread"]))
                ]
                parts.append(
                    f"{method}, {name}: {sum(e < FOUND for e in errors)} of {len(errors)}" if errors else ""
                )
        result.append(
            Finding(
                claim, "learned", "; ".join(filter(None, parts)), f"found: relative error < {FOUND}; n > 8"
            )
        )
    direct = [row for row in select.where(rows, part="direct") if row["matrix"] in KINDS]
    if direct:
        worst, largest = max(row["error"] for row in direct), max(row["n"] for row in direct)
        slowest = max(row["seconds"] for row in direct if row["n"] == largest)
        ours = (
            f"{sum(row['error'] < 1e-6 for row in direct)} of {len(direct)} to 1e-6; worst error {worst:.1e}"
        )
        least = min(row["n"] for row in direct)
        note = f"uniform angles, n = {least}…{largest}; at most {slowest:.2g} s at n = {largest}"
        result.append(Finding("the same, by direct recovery", "–", ours, note))
    printed = select.values(rows, "error", part="direct", matrix=PRINTED)
    if printed:
        note = "its strides run the other way: it is in the class QᵀDQ, not in QDQᵀ"
        ours = f"not in the class: relative error {min(printed):.2f}–{max(printed):.2f}"
        result.append(Finding("H = RᵀΛR, as printed, is learned", "L → 0", ours, note))
    return result


def text(rows: list[Row]) -> str:
    """Where gradients succeed and where they do not."""
    failures, stuck = (
        [
            row["error"]
            for row in select.where(rows, part="gradient", matrix="H", spread=UNIFORM, method=method)
            if row["n"] > 8 and row["error"] >= FOUND
        ]
        for method in ("Algorithm 1", "L-BFGS")
    )
    learned = [row["error"] for row in select.where(rows, part="gradient", matrix="R", method="Algorithm 1")]
    sentence = f"Algorithm 1 learns R itself in {sum(e < FOUND for e in learned)} of {len(learned)} trials. "
    if failures and stuck:
        sentence += (
            f"For H with uniform angles and n > 8 it stops at a relative error of {np.median(failures):.2f} "
            f"(median of the failures), L-BFGS from several starts at {np.median(stuck):.2f}. Direct recovery, "
            "which solves one eigenvector problem per level, has no start to get wrong."
        )
    return sentence


def _small(spread: Any) -> bool:
    return spread != UNIFORM and float(spread) <= 0.3
