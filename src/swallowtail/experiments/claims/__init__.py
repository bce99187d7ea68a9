"""What the paper claims in passing, each claim with a number of its own.

- Eigenspaces of high dimension make it easier.
- Probes on the sphere or in a cube do well, and probes from a region do better there.
- D wants a smaller learning rate.
- The inverse comes by inverting D.
- Random products of n lg(n)/2 Givens rotations are like uniform rotations.
- A product costs 4n lg n + n MulAdds, tracking 12n lg n + 3n, a quadratic form 2n lg n + 2n; 2n lg n + n parameters
  are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swallowtail.experiments.claims.counting import count_rows
from swallowtail.experiments.claims.figure import plot
from swallowtail.experiments.claims.findings import findings
from swallowtail.experiments.claims.fits import eigenspace_rows, inverse_rows, probe_rows
from swallowtail.experiments.claims.haar import haar_rows, interaction_rows
from swallowtail.experiments.claims.rates import rate_rows
from swallowtail.experiments.common.rows import Row, collect

__all__ = ["FULL", "QUICK", "TITLE", "Config", "findings", "plot", "run"]

TITLE = "Claims made in passing"


@dataclass(frozen=True)
class Config:
    """How much to run; n = 64 and n_μ = 5 as in the paper unless it says otherwise."""

    seeds: int
    epochs: int  # of Algorithm 1
    dimensions: tuple[int, ...]  # of eigenspaces of equal size; each divides n
    largest: tuple[int, ...]  # dimensions of one large eigenspace
    rates: tuple[float, ...]
    factors: tuple[float, ...]  # D's rate over Q's
    depths: tuple[int, ...]
    draws: int  # random rotations per depth
    count_sizes: tuple[int, ...]
    n: int = 64
    n_large: int = 5
    interaction_sizes: tuple[int, ...] = (64, 65, 784)
    seed: int = 300


QUICK = Config(
    seeds=2,
    epochs=12,
    dimensions=(1, 32),
    largest=(32, 56),
    rates=(0.002, 0.008),
    factors=(0.1, 1.0),
    depths=(1, 2, 4),
    draws=10,
    count_sizes=(4, 64),
)
FULL = Config(
    seeds=5, epochs=30, dimensions=(1, 4, 16, 32), largest=(16, 32, 48, 56, 60),
    rates=(0.002, 0.004, 0.008, 0.016), factors=(0.03, 0.1, 0.3, 1.0, 3.0),
    depths=(1, 2, 3, 4, 6, 8), draws=50, count_sizes=(4, 16, 64, 256),
)  # fmt: skip


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows of the parts "eigenspaces", "probes", "rates", "inverse", "haar", "interaction" and "count"."""
    n, epochs = config.n, config.epochs
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for seed in range(config.seed, config.seed + config.seeds):
        for kind, dimensions in (("equal", config.dimensions), ("one", config.largest)):
            for m in dimensions:
                tasks[f"eigenspaces {kind} {m} seed {seed}"] = partial(
                    eigenspace_rows, n, kind, m, epochs, seed
                )
        tasks[f"probes seed {seed}"] = partial(probe_rows, n, config.n_large, epochs, seed)
        tasks[f"rates seed {seed}"] = partial(
            rate_rows, n, config.n_large, config.rates, config.factors, epochs, seed
        )
        tasks[f"inverse seed {seed}"] = partial(_inverses, n, config.n_large, seed)
    tasks["haar"] = partial(haar_rows, n, config.depths, config.draws, config.seed)
    tasks["interaction"] = partial(interaction_rows, config.interaction_sizes)
    for size in config.count_sizes:
        tasks[f"count n={size}"] = partial(count_rows, size, config.seed)
    return collect(tasks, path, "claims", progress)


def _inverses(n: int, n_large: int, seed: int) -> list[Row]:
    # With few large eigenvalues the rest is near zero and H⁻¹ theirs alone; 0.1·I is the damping one would use.
    return inverse_rows(n, n, 0.0, seed) + inverse_rows(n, n_large, 0.1, seed)
