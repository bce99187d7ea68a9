"""Algorithm 2: optimisation with a linearithmic Hessian, batch and minibatch, and each detail of section 4.

The paper describes the method and prints no result. Here it runs on a quadratic with the paper's synthetic H, on
Rosenbrock's function, on logistic regression and on a small network, and we measure the loss gap against the number
of gradients. Its details are switched off one by one. Minibatches have two gradients per step, or each is used k
times. The rivals are L-BFGS, truncated Newton (conjugate gradients on differences of gradients), Adam, heavy ball,
and our own successors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swallowtail.experiments.algorithm2 import runs
from swallowtail.experiments.algorithm2.figure import plot
from swallowtail.experiments.algorithm2.findings import findings, text
from swallowtail.experiments.algorithm2.identity import identity_rows
from swallowtail.experiments.common.rows import Row, collect

__all__ = ["FULL", "QUICK", "TITLE", "Config", "findings", "plot", "run", "text"]

TITLE = "Algorithm 2: an optimiser that follows the Hessian"


@dataclass(frozen=True)
class Config:
    """How much to run."""

    limits: tuple[tuple[str, int], ...]  # problem, gradients allowed
    seeds: int
    epsilons: tuple[float, ...]
    minibatch_gradients: int
    wells: int  # gradients allowed where curvature is negative
    rows: int = 500  # digits
    seed: int = 800


QUICK = Config(
    limits=(("quadratic", 500), ("Rosenbrock", 800), ("logistic", 100), ("network", 100)), seeds=1,
    epsilons=(0.01, 0.1, 0.3, 1.0), minibatch_gradients=250, wells=200, rows=300,
)  # fmt: skip
FULL = Config(
    limits=(("quadratic", 1500), ("Rosenbrock", 2500), ("logistic", 400), ("network", 400)), seeds=3,
    epsilons=(1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0), minibatch_gradients=1000, wells=400,
)  # fmt: skip


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows of the parts "goal", "curve", "detail", "epsilon", "minibatch" and "identity"."""
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for seed in range(config.seed, config.seed + config.seeds):
        for problem, limit in config.limits:
            tasks[f"{problem} seed {seed}"] = partial(runs.batch_rows, problem, limit, seed, config.rows)
            # It needs so small an α that nothing is learned, with the details or without.
            if problem != "Rosenbrock":
                tasks[f"details, {problem} seed {seed}"] = partial(
                    runs.detail_rows, problem, limit, seed, config.rows
                )
        tasks[f"details, wells seed {seed}"] = partial(runs.detail_rows, "wells", config.wells, seed, 0)
        problem, limit = "logistic", dict(config.limits).get("logistic", config.wells)
        tasks[f"epsilon seed {seed}"] = partial(
            runs.epsilon_rows, problem, limit, seed, config.rows, config.epsilons
        )
        for method in runs.MINIBATCH:
            tasks[f"minibatch {method} seed {seed}"] = partial(
                runs.minibatch_rows, method, seed, config.rows, config.minibatch_gradients
            )
    tasks["identity"] = partial(identity_rows, (50, 100, 150), config.seed)
    return collect(tasks, path, "algorithm2", progress)
