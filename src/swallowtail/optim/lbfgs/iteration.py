"""L-BFGS with a learned H₀ on one vector, for the torch optimiser and the SciPy method alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.ops import PreparedCache
from swallowtail.optim.lbfgs import compiled
from swallowtail.optim.lbfgs.line_search import Trial, strong_wolfe
from swallowtail.optim.lbfgs.memory import (
    Memory,
    forget,
    is_compiled,
    learn,
    learned_is_used,
    pairs_for,
    precondition,
)
from swallowtail.optim.lbfgs.settings import Settings

Evaluate = Callable[[Tensor], tuple[float, Tensor]]

LINE_SEARCH_LIMIT = 25  # evaluations in one line search, as in torch.optim.LBFGS


class Status(IntEnum):
    """Why an iteration ended."""

    GRADIENT_SMALL = 0
    CHANGE_SMALL = 1
    ITERATION_LIMIT = 2
    EVALUATION_LIMIT = 3
    NO_LOWER_POINT = 4
    STOPPED = 5

    @property
    def converged(self) -> bool:
        return self in (Status.GRADIENT_SMALL, Status.CHANGE_SMALL)

    @property
    def message(self) -> str:
        return _MESSAGES[self]


_MESSAGES = {
    Status.GRADIENT_SMALL: "the largest gradient entry is within tolerance_grad",
    Status.CHANGE_SMALL: "step and decrease are within tolerance_change",
    Status.ITERATION_LIMIT: "the iteration limit is reached",
    Status.EVALUATION_LIMIT: "the evaluation limit is reached",
    Status.NO_LOWER_POINT: "the line search found no lower point",
    Status.STOPPED: "the callback stopped it",
}


class Point(NamedTuple):
    """A point x, f(x) and the gradient there."""

    x: Tensor
    f: float
    gradient: Tensor


class Outcome(NamedTuple):
    """Where an iteration ended and why."""

    end: Point
    n_iterations: int
    n_evaluations: int
    status: Status


def minimize(
    evaluate: Evaluate,
    start: Point,
    memory: Memory,
    settings: Settings,
    callback: Callable[[Tensor, float], bool] | None = None,
) -> Outcome:
    """Iterate x ← x − t H g.

    H is the L-BFGS matrix of the samples in ``memory`` over H₀ = γ Q D⁻¹ Qᵀ; t comes from a strong Wolfe search.

    Args:
        evaluate: x ↦ (f, gradient); may return values that are not finite.
        start: where to start; f and the gradient are finite there.
        memory: samples and basis, updated in place.
        settings: limits and options.
        callback: called as callback(x, f) after each iteration; True stops.
    """
    here, n_evaluations, iteration = start, 0, 0
    status = Status.ITERATION_LIMIT
    cache = PreparedCache()
    while iteration < settings.max_iter:
        if _largest(here.gradient) <= settings.tolerance_grad:
            status = Status.GRADIENT_SMALL
            break
        if n_evaluations >= settings.max_eval:
            status = Status.EVALUATION_LIMIT
            break
        found, count = _next_point(evaluate, here, memory, settings, settings.max_eval - n_evaluations, cache)
        n_evaluations += count
        iteration += 1
        if found is None:
            if not int(memory["n_samples"]):
                status = Status.NO_LOWER_POINT
                break
            forget(memory)  # the model was wrong: begin again from steepest descent
            continue
        step, decrease = found.x - here.x, here.f - found.f
        learn(memory, step, found.gradient - here.gradient, settings, cache)
        here = Point(found.x, found.f, found.gradient)
        if callback is not None and callback(here.x, here.f):
            status = Status.STOPPED
            break
        if max(_largest(step), abs(decrease)) <= settings.tolerance_change:
            status = Status.CHANGE_SMALL
            break
    return Outcome(here, iteration, n_evaluations, status)


def _next_point(
    evaluate: Evaluate, here: Point, memory: Memory, settings: Settings, n_left: int, cache: PreparedCache
) -> tuple[Trial | None, int]:
    """One step along −H g: where it leads, None if nowhere better, and the evaluations it took."""
    d = -direction(memory, here.gradient, settings, cache)
    slope = float(here.gradient @ d)
    if not slope < 0 or not math.isfinite(slope):
        forget(memory)
        d = -here.gradient
        slope = float(here.gradient @ d)
    t = settings.lr
    if not int(memory["n_samples"]):
        t *= 1.0 / math.sqrt(-slope)  # no scale is known yet: the first step has length lr

    def phi(t: float) -> Trial:
        new = here.x + t * d
        value, g = evaluate(new)
        return Trial(t, value, float(g @ d), new, g)

    if settings.line_search:
        start = Trial(0.0, here.f, slope, here.x, here.gradient)
        return strong_wolfe(phi, start, t, max_evaluations=max(1, min(LINE_SEARCH_LIMIT, n_left)))
    found = phi(t)
    finite = math.isfinite(found.f) and bool(torch.isfinite(found.gradient).all())
    return (found if finite else None), 1


def direction(
    memory: Memory, gradient: Tensor, settings: Settings, cache: PreparedCache | None = None
) -> Tensor:
    """H g by the two-loop recursion over H₀ = γ Q D⁻¹ Qᵀ, with γ = sᵀy / yᵀQD⁻¹Qᵀy from the newest sample."""
    count, size = int(memory["n_samples"]), settings.history_size
    if not count:
        return gradient.clone()
    if is_compiled(gradient):
        names = ("steps", "changes", "angles", "inverse_eigenvalues")
        S, Y, angles, d = (memory[name].numpy() for name in names)
        learned, pairs = learned_is_used(memory), pairs_for(gradient.numel())
        return torch.from_numpy(compiled.direction(gradient.numpy(), S, Y, count, learned, pairs, angles, d))
    order = [(count - 1 - k) % size for k in range(min(count, size))]  # newest first
    steps, changes = memory["steps"], memory["changes"]
    q, alphas = gradient.clone(), []
    for k in order:
        alpha = (steps[k] @ q) / (steps[k] @ changes[k])
        q -= alpha * changes[k]
        alphas.append(alpha)
    newest = order[0]
    both = torch.stack([q, changes[newest]])
    if learned_is_used(memory):
        both = precondition(memory, both, cache)
    z = both[0] * ((steps[newest] @ changes[newest]) / (changes[newest] @ both[1]))
    for k, alpha in zip(reversed(order), reversed(alphas), strict=True):
        z += steps[k] * (alpha - (changes[k] @ z) / (steps[k] @ changes[k]))
    return z


def _largest(x: Tensor) -> float:
    """The largest |x_i|; NaN if there is one."""
    return compiled.largest(x.numpy()) if is_compiled(x) else float(x.abs().max())
