"""Algorithm 2 written out in a few lines, with a switch for each of its details."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.experiments.algorithm2.problems import Flat, LimitReachedError, Problem
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.wiring import Butterfly

LOST = 1e9  # times the first loss: it does not come back from there


@dataclass(frozen=True)
class Details:
    """α, β, ε and what else the paper says about Algorithm 2; the defaults are its text."""

    rate: float | tuple[float, float]  # α, or one for Q and one for D
    lr: float  # β
    epsilon: float  # ε
    scaled: bool = True  # samples times 1/‖δu‖
    floor: bool = True  # D no smaller than ε where it is inverted
    negative_to_epsilon: bool = True  # at each projection; otherwise negative curvature is followed uphill
    printed: bool = False  # step along Ĥ∇ℓ, as the algorithm is printed
    direct: bool = False  # learn the inverse from δu ≈ Ĥ⁻¹δg


@dataclass(frozen=True)
class Outcome:
    """How a descent went."""

    curve: list[tuple[int, float]]  # gradients, least loss so far
    diverged: bool
    negative: float  # share of the steps at which some element of D was negative


def descend(problem: Problem, how: Details, limit: int) -> Outcome:
    """Algorithm 2 on a problem: from Q = I and D = I, one sample learned and one step taken per gradient."""
    flat, n = Flat(problem, limit), problem.size
    wiring = Butterfly(n)
    tracker = Tracker(
        n,
        rate=how.rate,
        rescale=False,
        unit_inputs=how.scaled,
        floor=how.epsilon if how.negative_to_epsilon else None,
        angles=np.zeros(wiring.n_rotations),
        eigenvalues=1.0,
    )
    u = torch.cat([p.detach().reshape(-1) for p in problem.params]).numpy().copy()
    first, negative, steps = float(problem.loss(None).detach()), 0, 0
    before: tuple[np.ndarray, np.ndarray] | None = None
    with suppress(LimitReachedError), np.errstate(all="ignore"):
        while True:
            loss, g = flat(u)
            if not (loss < LOST * max(first, 1.0) and np.isfinite(g).all()):
                return Outcome(flat.curve, True, negative / max(steps, 1))
            if before is not None:
                sample = (u - before[0], g - before[1])
                tracker.update(*(reversed(sample) if how.direct else sample))
            before = u, g
            negative, steps = negative + bool((tracker.eigenvalues < 0).any()), steps + 1
            if not np.isfinite(tracker.eigenvalues).all():
                return Outcome(flat.curve, True, negative / steps)
            middle = _multiplier(torch.from_numpy(tracker.eigenvalues), how)
            angles = torch.from_numpy(tracker.angles)
            u = u - how.lr * ops.symmetric_matvec(torch.from_numpy(g), wiring, angles, middle).numpy()
    return Outcome(flat.curve, False, negative / max(steps, 1))


def _multiplier(d: Tensor, how: Details) -> Tensor:
    """What stands between Q and Qᵀ in the step."""
    if how.printed:
        return d
    if how.direct:
        return d.clamp(min=how.epsilon) if how.floor else d
    if not how.negative_to_epsilon:  # sizes have a floor, signs are kept
        return 1 / torch.where(d.abs() < how.epsilon, how.epsilon, d)
    return 1 / (d.clamp(min=how.epsilon) if how.floor else torch.where(d == 0, 1e-300, d))
