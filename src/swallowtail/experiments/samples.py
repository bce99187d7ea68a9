"""The number m of training samples, and what else can be done with as many products Hx.

Algorithm 1 learns from m samples (x, y = Hx). The paper notes that it never needs H, only a way to compute these
products, and leaves open how many are needed.

We learn an H like Figure 1's in three ways: from m random samples by Algorithm 1, which draws from the same m until
it converges; by Algorithm 1 with a fresh sample every step; and by our fit from products. That fit chooses its own x
(block Krylov), completes H from the products, and chooses pairs of coordinates from the completion. The rival beside
it is c·I + low rank cut from the same completion, at equal multiply-adds. With n products H is known: what is left
is the error of the form itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from swallowtail.datasets import random_symmetric
from swallowtail.experiments.common import plots
from swallowtail.experiments.common.findings import Finding, mean_and_spread
from swallowtail.experiments.common.fits import PROBES, as_operator
from swallowtail.experiments.common.rows import Row, collect
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.products import fit_products
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.rivals import equal_ranks, factor_rivals
from swallowtail.metrics import error_angle

TITLE = "How many samples Algorithm 1 needs"
SAME = "Algorithm 1, m samples drawn again and again"
FRESH = "Algorithm 1, every sample used once"
OURS = "ours, from m products of its own choice"
RIVAL = "c·I + low rank from the same products, equal multiply-adds"


@dataclass(frozen=True)
class Config:
    """What to run."""

    n: int = 64
    n_large: int = 5
    m: tuple[int, ...] = (16, 32, 64, 96, 128, 256, 512, 2048)
    n_draws: int = 60 * 2048  # steps of Algorithm 1, whatever m
    fresh: int = 60 * 2048
    products: tuple[int, ...] = (4, 8, 12, 16, 24, 32, 48, 64)
    first_seed: int = 22014
    n_seeds: int = 10


QUICK = Config(
    m=(32, 64, 128, 512, 2048), n_draws=16 * 2048, fresh=16 * 2048, products=(8, 16, 32, 64), n_seeds=2
)
FULL = Config(first_seed=92014, n_seeds=5)


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """One task per seed and number of samples."""
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for seed in range(config.first_seed, config.first_seed + config.n_seeds):
        for m in config.m:
            tasks[f"m {m} seed {seed}"] = partial(_learn, config, m, seed)
        tasks[f"fresh seed {seed}"] = partial(_fresh, config, seed)
        tasks[f"products seed {seed}"] = partial(_products, config, seed)
    return collect(tasks, path, "number of samples", progress)


def _learn(config: Config, m: int, seed: int) -> list[Row]:
    H = random_symmetric(config.n, config.n_large, seed)
    fit = fit_sgd(H, n_samples=m, epochs=max(1, config.n_draws // m), seed=seed)
    angle = error_angle(H, as_operator(fit), PROBES, seed + 1)
    return [_row(config, seed, SAME, m, angle) | {"training_angle": fit.history[-1].angle}]


def _fresh(config: Config, seed: int) -> list[Row]:
    """The angle of an epoch is one on samples not seen before: no need to measure it on others."""
    H = random_symmetric(config.n, config.n_large, seed)
    size = 2 * config.n
    fit = fit_sgd(H, n_samples=size, fresh=True, epochs=config.fresh // size, seed=seed)
    marks = [2**k - 1 for k in range(len(fit.history).bit_length())]
    return [
        _row(config, seed, FRESH, fit.history[k].n_products, fit.history[k].angle)
        for k in [*marks, len(fit.history) - 1]
    ]


def _products(config: Config, seed: int) -> list[Row]:
    H, K = random_symmetric(config.n, config.n_large, seed), default_budget(config.n)
    rows = []
    for m in config.products:
        fit = fit_products(lambda X: H @ X, config.n, K, m, seed)
        operator = as_operator(fit)
        rows.append(_row(config, seed, OURS, m, error_angle(H, operator, PROBES, seed + 1)))
        for rival in factor_rivals(fit.completion, operator):
            if "multiply-adds" in rival.equal:
                angle = error_angle(H, rival.operator, PROBES, seed + 1)
                rows.append(
                    _row(config, seed, RIVAL, m, angle) | {"rank": equal_ranks(operator)["multiply-adds"]}
                )
    return rows


def _row(config: Config, seed: int, method: str, m: int, angle: float) -> Row:
    head = {"n": config.n, "n_large": config.n_large, "seed": seed}
    return head | {"method": method, "m": m, "angle": angle}


def plot(rows: list[Row]) -> Figure:
    """Angle against the number of products."""
    drawing, (axes,) = plots.figure(1, 5.6)
    styles = {
        SAME: (plots.COLOURS["black"], "o-"),
        FRESH: (plots.COLOURS["blue"], "s-"),
        OURS: (plots.COLOURS["green"], "^-"),
        RIVAL: (plots.COLOURS["red"], "v--"),
    }
    for method, (colour, mark) in styles.items():
        plots.spread(
            axes,
            [row for row in rows if row["method"] == method],
            "m",
            "angle",
            color=colour,
            marker=mark[0],
            linestyle=mark[1:],
            label=method,
        )
    n = max(row["n"] for row in rows)
    axes.axvline(
        n, color=plots.COLOURS["grey"], linestyle=":", linewidth=1.5, label=f"n = {n} products: H is known"
    )
    axes.set(xlabel="m, products Hx used", ylabel="error angle, degrees", ylim=(0, 95))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    plots.legend_below(axes, 1)
    return drawing


def findings(rows: list[Row]) -> list[Finding]:
    """How many samples each needs."""
    same, ours, rival = (_means(rows, method) for method in (SAME, OURS, RIVAL))
    most = max(same)
    end = [row["angle"] for row in rows if row["method"] == SAME and row["m"] == most]
    enough = min(m for m in same if same[m] <= same[most] + 1.0)
    gap = [
        row["angle"] - row["training_angle"]
        for row in rows
        if row["method"] == SAME and row["m"] == min(same)
    ]
    few = min((m for m in ours if ours[m] <= same[most]), default=max(ours))
    return [
        Finding(
            f"samples Algorithm 1 needs (n = {rows[0]['n']}, n_μ = {rows[0]['n_large']})",
            "not given",
            f"{enough} samples come within 1° of the {mean_and_spread(end)} with {most}",
            f"with {min(same)} samples it is {np.mean(gap):.0f}° worse on fresh x than on its own",
        ),
        Finding(
            "products needed for as good a fit",
            "–",
            f"{few} products give {ours[few]:.1f}°",
            f"ours; c·I + low rank from the same {few}, at equal multiply-adds, gives {rival[few]:.1f}°",
        ),
    ]


def better(rows: list[Row]) -> list[str]:
    """For the summary."""
    same, ours, rival = (_means(rows, method) for method in (SAME, OURS, RIVAL))
    most, few = max(same), min((m for m in ours if ours[m] <= same[max(same)]), default=max(ours))
    lost = [m for m in sorted(ours) if rival[m] < ours[m]]
    ending = (
        f"c·I + low rank from the same products is better still at m = {', '.join(map(str, lost))}"
        if lost
        else ("c·I + low rank from the same products is worse throughout")
    )
    return [
        f"From products alone: {few} of them give {ours[few]:.1f}°, where Algorithm 1 ends at {same[most]:.1f}° with "
        f"{most}. On this matrix {ending}."
    ]


def _means(rows: list[Row], method: str) -> dict[int, float]:
    angles: dict[int, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            angles.setdefault(row["m"], []).append(row["angle"])
    return {m: float(np.mean(values)) for m, values in angles.items()}
