"""Hessians of objective functions, the third kind of matrix in the paper's abstract.

The paper announces them and prints no number. Here logistic regression and a small tanh network are trained on
scikit-learn's digits. The matrices are the exact Hessian of the mean loss and its generalised Gauss–Newton matrix,
given as products. We fit from few products, from all entries as the yardstick, and c·I + low rank from the same
products. Such a matrix is needed to solve (H + λI) x = g, so each fit is also used as a preconditioner of conjugate
gradients, with g the gradient on digits not trained on and λ a thousandth of the largest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swallowtail.experiments.common.rows import Row, collect
from swallowtail.experiments.hessians.figure import plot
from swallowtail.experiments.hessians.findings import findings, text
from swallowtail.experiments.hessians.runs import case_rows, name

__all__ = ["FULL", "QUICK", "TITLE", "Config", "findings", "plot", "run", "text"]

TITLE = "Hessians of objective functions"


@dataclass(frozen=True)
class Config:
    """How much to run; a case is a network's widths and the matrix."""

    cases: tuple[tuple[tuple[int, ...], str], ...]
    products: tuple[int, ...]  # how many a fit may ask for
    rows: int  # digits trained on; the next 200 give g
    cycles: int  # of the fits to all entries, the yardsticks
    seeds: int = 1
    seed: int = 700


# 16 inputs are the digits at 4×4 pixels. The Hessian of logistic regression is its GGN: no need to run both.
QUICK = Config(
    cases=(((16, 10), "hessian"), ((16, 6, 10), "hessian"), ((16, 6, 10), "ggn")),
    products=(32,),
    rows=300,
    cycles=3,
)
FULL = Config(
    cases=(((64, 10), "hessian"), ((64, 8, 10), "hessian"), ((64, 8, 10), "ggn"), ((64, 16, 10), "ggn")),
    products=(16, 64, 256),
    rows=1000,
    cycles=6,
)


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows of part "fit" (method, products, angle, floats, CG iterations) and "spectrum" (index, true, ours)."""
    tasks: dict[str, Callable[[], list[Row]]] = {
        f"{name(widths)} {curvature} seed {seed}": partial(
            case_rows, widths, curvature, config.rows, config.products, config.cycles, seed
        )
        for seed in range(config.seed, config.seed + config.seeds)
        for widths, curvature in config.cases
    }
    return collect(tasks, path, "hessians", progress)
