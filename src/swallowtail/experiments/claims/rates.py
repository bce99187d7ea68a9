"""Algorithm 1's two learning rates: the rows, and how soon each setting converges."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from swallowtail.datasets import random_symmetric
from swallowtail.experiments.common import select
from swallowtail.experiments.common.rows import Row
from swallowtail.fitting.methods.sgd import Epoch, fit_sgd

NEAR = 1.0  # degrees: an epoch whose angle is this near the best one reached has converged


def rate_rows(
    n: int, n_large: int, rates: tuple[float, ...], factors: tuple[float, ...], epochs: int, seed: int
) -> list[Row]:
    """Algorithm 1's angle after every epoch, by the rate of Q and the factor by which D's differs from it."""
    H = random_symmetric(n, n_large, seed)
    rows: list[Row] = []
    for rate in rates:
        for factor in factors:
            history: list[Epoch] = []
            with suppress(ValueError):  # D diverged; the epochs before it are the rows
                fit_sgd(H, epochs=epochs, rate=(rate, rate * factor), seed=seed, callback=history.append)
            common = {"part": "rates", "n": n, "rate": rate, "factor": factor, "seed": seed}
            rows += [{**common, "epoch": e.epoch, "angle": e.angle} for e in history]
    return rows


def epochs_to_converge(rows: list[Row], factor: float, rate: float | None = None) -> float:
    """Mean epochs until the angle is within NEAR of the seed's best over all settings; one too many if it never is."""
    rate = best_rate(rows, factor) if rate is None else rate
    counts, last = [], max(select.kinds(rows, "epoch", part="rates"))
    for seed in select.kinds(rows, "seed", part="rates"):
        goal = min(select.values(rows, "angle", part="rates", seed=seed)) + NEAR
        near = [
            row["epoch"]
            for row in select.where(rows, part="rates", seed=seed, factor=factor, rate=rate)
            if row["angle"] <= goal
        ]
        counts.append(min(near, default=last + 1))
    return float(np.mean(counts))


def best_rate(rows: list[Row], factor: float) -> float:
    """The rate of Q with which this factor converges soonest."""
    rates = select.kinds(rows, "rate", part="rates", factor=factor)
    return min(rates, key=lambda rate: epochs_to_converge(rows, factor, rate))
