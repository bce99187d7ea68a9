"""Figure 1: the average error angle against epochs.

The paper learns a synthetic H = R Λ Rᵀ (n = 64, n_μ = 5 large eigenvalues) with Algorithm 1 and ends at about
35°; learning a uniformly random (Haar) rotation R with a single Q ends at 68°.

We run Algorithm 1 as printed: relaxed blocks, projected after every step, one sample (x, Hx) per step. It has
m = 32 n samples with x on the unit sphere; an epoch is m draws from them. The curve is the mean angle over an
epoch, on the samples it trains on. The end is measured on 2000 fresh x.

The second panel has the same H and the same 192 rotations, against the processor time of a fit: Algorithm 1
epoch by epoch; the same butterfly on the whole objective (L-BFGS with D eliminated); and pairs chosen from the
data, grown, polished, then pruned and regrown for ever more cycles. Depth 2 has twice the rotations. Kernels are
compiled before the clock starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.experiments.common import plots
from swallowtail.experiments.common.findings import Finding, away_from, mean_and_spread
from swallowtail.experiments.common.fits import PROBES, as_operator, fit_row, rival_rows
from swallowtail.experiments.common.rows import Row, collect
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.metrics import error_angle

TITLE = "Figure 1: how learning goes, on symmetric matrices and on rotations"
PAPER = {"H": 35.0, "R": 68.0}
BAR = {"H": 2.0, "R": 1.5}  # how near to the paper we mean to be
ALGORITHM_1 = "Algorithm 1 (the paper)"
PAIRS = "pairs chosen from the data"
EQUAL_WORK = "c·I + low rank, equal multiply-adds"


@dataclass(frozen=True)
class Config:
    """What to run."""

    n: int = 64
    n_large: int = 5
    epochs: int = 60
    first_seed: int = 2014
    n_seeds: int = 10
    n_timed: int = 3  # seeds of the second panel
    cycles: tuple[int, ...] = (0, 10, 100)  # of pruning and regrowing


QUICK = Config(epochs=20, n_seeds=3, n_timed=1)
FULL = Config(epochs=100, first_seed=72014, n_seeds=12, n_timed=3, cycles=(0, 3, 10, 30, 100))


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Learn H and R from every seed, then time the other fitters."""
    seeds = range(config.first_seed, config.first_seed + config.n_seeds)
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for seed in seeds:
        tasks[f"H {seed}"] = partial(_learn, config, "H", seed)
        tasks[f"R {seed}"] = partial(_learn, config, "R", seed)
    for seed in seeds[: config.n_timed]:
        tasks[f"seconds {seed}"] = partial(_time, config, seed)
    return collect(tasks, path, "figure 1", progress)


def _learn(config: Config, what: str, seed: int) -> list[Row]:
    n = config.n
    A = random_symmetric(n, config.n_large, seed) if what == "H" else random_orthogonal(n, seed)
    loss = "symmetric" if what == "H" else "rotation"
    fit = fit_sgd(A, loss=loss, epochs=config.epochs, seed=seed)
    head = {"what": what, "n": n, "n_large": config.n_large, "seed": seed}
    rows = [head | {"part": "epochs", "epoch": e.epoch, "angle": e.angle} for e in fit.history]
    end = error_angle(A, as_operator(fit), PROBES, seed + 1)
    return [*rows, head | {"part": "end", "epoch": len(fit.history), "angle": end}]


def _time(config: Config, seed: int) -> list[Row]:
    H = random_symmetric(config.n, config.n_large, seed)
    K = default_budget(config.n)
    _compile()
    rows = _algorithm_1_by_seconds(H, config.epochs, seed)
    fits: dict[str, tuple[str, Callable[[], Any]]] = {
        "butterfly, one start": ("butterfly", partial(fit_butterfly, H, 1, starts=0, kicks=0, seed=seed)),
        "butterfly, 8 starts": ("butterfly", partial(fit_butterfly, H, 1, kicks=0, seed=seed)),
        "butterfly, kicks": ("butterfly", partial(fit_butterfly, H, 1, seed=seed)),
        "depth 2, one start": (
            "butterfly, depth 2",
            partial(fit_butterfly, H, 2, starts=0, kicks=0, seed=seed),
        ),
        "depth 2, kicks": ("butterfly, depth 2", partial(fit_butterfly, H, 2, seed=seed)),
    }
    for cycles in config.cycles:
        fits[f"pairs, {cycles} cycles"] = (PAIRS, partial(fit_pairs, H, K, cycles=cycles, seed=seed))
    operator: Any = None
    for effort, (method, fit) in fits.items():
        row, operator = fit_row(H, method, fit, seed)
        rows.append(row | {"effort": effort})
    rows += rival_rows(H, operator, seed)  # the last operator is a fit with K pairs
    head = {"part": "seconds", "what": "H", "n": config.n, "n_large": config.n_large, "seed": seed}
    return [head | row for row in rows]


def _compile() -> None:
    """Let Numba compile what is timed, on a small matrix."""
    H = random_symmetric(8, 2, 0)
    fit_sgd(H, epochs=1)
    fit_butterfly(H, 1, starts=1, kicks=1)
    fit_pairs(H, 12, cycles=1)


def _algorithm_1_by_seconds(H: np.ndarray, epochs: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    begin = time.process_time()

    def note(epoch: Any) -> None:
        rows.append(
            {
                "method": ALGORITHM_1,
                "effort": f"epoch {epoch.epoch}",
                "angle": epoch.angle,
                "seconds": time.process_time() - begin,
            }
        )

    fit_sgd(H, epochs=epochs, seed=seed, callback=note)
    return rows


def plot(rows: list[Row]) -> Figure:
    """Angle against epochs, and against seconds."""
    drawing, (top, bottom) = plots.figure(2, 5.0)
    colours = {"H": plots.COLOURS["green"], "R": plots.COLOURS["red"]}  # the paper's
    for what, label in (("R", "a Haar rotation R"), ("H", f"H with n_μ = {rows[0]['n_large']}")):
        chosen = [row for row in rows if row["part"] == "epochs" and row["what"] == what]
        plots.spread(top, chosen, "epoch", "angle", color=colours[what], label=label)
        top.axhline(PAPER[what], color=colours[what], linestyle=":", linewidth=1.5)
    top.plot([], [], color=plots.COLOURS["grey"], linestyle=":", label="the paper's end")
    top.set(title="Algorithm 1", xlabel="epochs", ylabel="error angle, degrees", ylim=(0, 95))
    plots.legend_below(top, 3)

    timed = [row for row in rows if row["part"] == "seconds"]
    styles = {
        ALGORITHM_1: (plots.COLOURS["black"], "-"),
        "butterfly": (plots.COLOURS["blue"], "o-"),
        "butterfly, depth 2": (plots.COLOURS["orange"], "s-"),
        PAIRS: (plots.COLOURS["green"], "^-"),
    }
    for method, (colour, mark) in styles.items():
        for number, seed in enumerate(sorted({row["seed"] for row in timed})):
            points = sorted(
                (row["seconds"], row["angle"])
                for row in timed
                if row["method"] == method and row["seed"] == seed
            )
            label = method if number == 0 else "_"  # an underscore keeps it out of the legend
            bottom.plot(*zip(*points, strict=True), mark, color=colour, label=label, alpha=0.7, linewidth=1.2)
    for method, mark in (("c·I + low rank, equal floats", ":"), (EQUAL_WORK, "--")):
        values = [row["angle"] for row in timed if row["method"] == method]
        if values:
            bottom.axhline(
                float(np.mean(values)),
                color=plots.COLOURS["grey"],
                linestyle=mark,
                linewidth=1.5,
                label=method,
            )
    bottom.set(
        title="The same H, by the time it takes",
        xlabel="seconds of processor time",
        ylabel="error angle, degrees",
        xscale="log",
        ylim=(0, 95),
    )
    bottom.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    plots.legend_below(bottom, 1)
    return drawing


def findings(rows: list[Row]) -> list[Finding]:
    """The two ends the paper gives."""
    names = {
        "H": f"Algorithm 1 on H, n = {rows[0]['n']}, n_μ = {rows[0]['n_large']}: angle at the end",
        "R": "Algorithm 1 on a Haar rotation R",
    }
    found = []
    for what, name in names.items():
        ends = _ends(rows, what)
        verdict = away_from(PAPER[what], float(np.mean(ends)), BAR[what])
        found.append(
            Finding(name, f"about {PAPER[what]:.0f}°", mean_and_spread(ends), f"{verdict}; {len(ends)} seeds")
        )
    H, R = (float(np.mean(_ends(rows, what))) for what in ("H", "R"))
    order = "yes" if H < R else "no"
    found.append(
        Finding("H is easier than R", "yes", order, f"by {R - H:.0f}°: eigenspaces of high dimension help")
    )
    return found


def text(rows: list[Row]) -> str:
    """How soon Algorithm 1 is near its end."""
    means = {}
    for what in ("H", "R"):
        curve: dict[int, list[float]] = {}
        for row in rows:
            if row["part"] == "epochs" and row["what"] == what:
                curve.setdefault(row["epoch"], []).append(row["angle"])
        averages = {epoch: float(np.mean(angles)) for epoch, angles in curve.items()}
        last = averages[max(averages)]
        means[what] = min(epoch for epoch, angle in averages.items() if angle <= last + 1.0)
    return (
        f"Algorithm 1 is within one degree of its end after {means['H']} epochs on H and {means['R']} on R. "
        f"More epochs do not help much: what limits it is which coordinates meet, as the second panel shows."
    )


def better(rows: list[Row]) -> list[str]:
    """For the summary."""
    timed = [row for row in rows if row["part"] == "seconds"]
    if not timed:
        return []
    mean = lambda method, key="angle": float(np.mean([r[key] for r in timed if r["method"] == method]))
    best = {row["seed"]: row for row in timed if row["method"] == PAIRS}  # the last: most cycles
    angle, seconds = (float(np.mean([row[key] for row in best.values()])) for key in ("angle", "seconds"))
    rival, first = mean(EQUAL_WORK), rows[0]
    ending = "and is the better choice there" if rival < angle else "which is worse"
    return [
        f"Synthetic H, {first['n_large']} large eigenvalues of {first['n']}: pairs chosen from the data reach "
        f"{angle:.1f}° in {seconds:.1f} s, with as many rotations as the butterfly on which Algorithm 1 reaches "
        f"{np.mean(_ends(rows, 'H')):.1f}°. c·I + low rank with as many multiply-adds reaches {rival:.1f}°, {ending}.",
    ]


def _ends(rows: list[Row], what: str) -> list[float]:
    return [row["angle"] for row in rows if row["part"] == "end" and row["what"] == what]
