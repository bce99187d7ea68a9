"""Algorithm 2 written out in a few lines, with a switch for each of its details; and the minibatch identity."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.experiments.common.run import Row
from swallowtail.experiments.problems import Flat, LimitReachedError, Problem, make_problem
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.wiring import Butterfly

LOST = 1e9  # times the first loss: it does not come back from there


@dataclass(frozen=True)
class Details:
    """α, β, ε and what else the paper says about Algorithm 2; the defaults are its text."""

    rate: float | tuple[float, float]  # α, or one for Q and one for D
    lr: float  # β
    epsilon: float  # ε
    scaled: bool = True  # pairs times 1/‖δu‖
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
    """Algorithm 2 on a problem: from Q = I and D = I, a pair learned and a step taken for each gradient."""
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
                pair = (u - before[0], g - before[1])
                tracker.update(*(reversed(pair) if how.direct else pair))
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


def loss_gradient(angles: np.ndarray, d: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∂L(ω̃, x, y)/∂ω̃ as one vector, for one pair on the paper's wiring."""
    n, pairs = len(x), unsigned_pairs(Butterfly(len(x)))
    gradient, by_d = np.empty((len(pairs), 4)), np.empty(n)
    work = np.empty((n, 1)), np.empty((n, 1))
    columns = x[:, None].copy(), y[:, None].copy()
    extended_gradient(pairs, np.cos(angles), np.sin(angles), d, *columns, False, gradient, by_d, *work)
    return np.concatenate([gradient.ravel(), by_d])


def identity_rows(sizes: tuple[int, ...], seed: int) -> list[Row]:
    """Do gradients of L on minibatches that make up the data average to the one on all of it?

    With mean losses and weights |A_i|/|A| they do. As printed, with summed losses and 1/|A| outside, Ĥδu comes
    p/|A| times instead of once, p the number of minibatches: a factor is lost.
    """
    total = sum(sizes)
    problem = make_problem("logistic", seed, total)
    rng = np.random.default_rng(seed)
    n = problem.size
    angles, d = rng.uniform(-np.pi, np.pi, Butterfly(n).n_rotations), rng.random(n)
    u, step = 0.1 * rng.standard_normal(n), 0.01 * rng.standard_normal(n)
    parts = torch.arange(total).split(list(sizes))
    changes = [_change(problem, u, step, part) for part in parts]
    whole = loss_gradient(angles, d, step, _change(problem, u, step, None))
    weighted = sum(m / total * loss_gradient(angles, d, step, c) for m, c in zip(sizes, changes, strict=True))
    printed = sum(loss_gradient(angles, d, step, m * c) for m, c in zip(sizes, changes, strict=True)) / total
    deviation = lambda g: float(np.linalg.norm(g - whole) / np.linalg.norm(whole))
    return [
        {"part": "identity", "average": "means, weights |A_i|/|A|", "deviation": deviation(weighted)},
        {"part": "identity", "average": "sums over |A|, as printed", "deviation": deviation(printed)},
    ]


def _change(problem: Problem, u: np.ndarray, step: np.ndarray, index: Tensor | None) -> np.ndarray:
    """δg on some rows of the data, of the mean loss."""
    gradients = []
    for point in (u + step, u):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(point), problem.params)
        parts = torch.autograd.grad(problem.loss(index), problem.params)
        gradients.append(torch.cat([g.reshape(-1) for g in parts]).numpy())
    return gradients[0] - gradients[1]
