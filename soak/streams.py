"""A million updates: memory stays flat, numbers stay finite."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable

import numpy as np
import torch

from soak.trial import Outcomes, Trial
from swallowtail import GivensCovariance, Rotation, Tracker

WARM, EVERY = 2_000, 10_000  # updates before memory is first looked at, and between two looks
GROWTH = 4 << 20  # bytes that may come and go


def resident() -> int:
    """Bytes of memory this process has."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _watched(update: Callable[[int], bool], seed: int) -> Outcomes:
    """One outcome per update; ``update`` returns whether all is finite."""
    start, k = 0, 0
    while True:
        good = update(k)
        k += 1
        fault = None if good else f"seed {seed}: not finite after {k} updates"
        if k == WARM:
            start = resident()
        elif k > WARM and k % EVERY == 0 and resident() > start + GROWTH:
            fault = f"seed {seed}: {(resident() - start) >> 20} MiB more after {k} updates"
        yield fault


def _tracking(seed: int) -> Outcomes:
    tracker, rng = Tracker(8), np.random.default_rng(seed)
    X, d = rng.normal(size=(64, 8)), np.arange(1.0, 9.0)
    return _watched(lambda k: bool(np.isfinite(tracker.update(X[k % 64], d * X[k % 64]))), seed)


def _covariances(seed: int) -> Outcomes:
    """`partial_fit` refits at every batch; here the rows are counted as updates."""
    estimator, rows = GivensCovariance(random_state=0), np.random.default_rng(seed).normal(size=(500, 6))

    def update(k: int) -> bool:
        if k % 500:
            return True
        estimator.partial_fit(rows)
        return bool(np.isfinite(estimator.covariance_.to_dense().numpy()).all())

    return _watched(update, seed)


def _products(seed: int) -> Outcomes:
    """Operators that come and go, and their caches of coefficients."""
    angles = torch.from_numpy(np.random.default_rng(seed).uniform(-3, 3, 12))
    x = torch.ones(8, dtype=torch.float64)
    wiring = Rotation.random(8, seed=0).wiring
    return _watched(lambda k: bool(torch.isfinite(Rotation(wiring, angles + k)(x)).all()), seed)


def _outcomes(work: Callable[[int], Outcomes], seed: int) -> Outcomes:
    torch.set_num_threads(1)
    yield from work(seed)


TRIALS = (
    Trial("updates of a tracker", lambda seed: _outcomes(_tracking, seed), 1_000_000, 0.06),
    Trial("rows of a stream", lambda seed: _outcomes(_covariances, seed), 1_000_000, 0.03),
    Trial("operators that come and go", lambda seed: _outcomes(_products, seed), 200_000, 0.04),
)
