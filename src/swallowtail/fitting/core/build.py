"""How a search begins: from behind, step by step, with a polish after each step.

A start is a few layers of disjoint pairs that reach every coordinate, about a third of the rotations. They need not do
much by themselves; what comes in front of them finds a way out through them. Each step adds rotations: half in front of
all others, by their promise to second order, and half behind, by what they gain. All starts take half of the steps; the
best goes on. It ended as the best in most fits of development, and never lost more than 2 %.

Growing greedily to the end instead leaves 10 to 80 % more error from n ≈ 500 on, most on kernels and images, and more
with more rotations. It can be better with few rotations: there `grow_few` does that too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting.core.objectives import WORK_BETWEEN_REPORTS
from swallowtail.fitting.core.search import POLISH, POLISH_TOLERANCE, Search, State
from swallowtail.fitting.core.searchable import FEW, inserted

FEWEST, WORK = 2, 3e11  # steps, and what all of them may cost: 4n³ multiply-adds each
TRIAL = 2  # a start takes a step in so many before the best is chosen; with 4 MNIST ended 7 % worse
GAIN = 1e-3  # of the objective: with less per step a quality that was asked for is out of reach
THRESHOLD = 0.1  # of the largest weight; 0.03 and 0.3 end within 1 % of it


class BuildPlan(NamedTuple):
    """How much a building may take."""

    steps: int = 8  # of additions; 4 leave 2 to 25 % more error at n ≈ 2000. 0: grow greedily
    starts: int = 2  # so many are tried

    @property
    def share(self) -> float:
        """The start's, of all rotations: 0.3 with 8 steps. With 2 steps 0.6 leaves 2 to 8 % less error."""
        return 0.3 * (8 / max(self.steps, 1)) ** 0.5

    def limited(self, n: int, work: float = WORK) -> BuildPlan:
        """The same with as many steps as n coordinates are worth on a CPU, or for other ``work``."""
        return self.of(min(self.steps, max(FEWEST, int(work / (4.0 * n**3)))))

    def of(self, steps: int) -> BuildPlan:
        """The same with so many steps, and one start where these are few."""
        return self._replace(steps=steps, starts=1 if steps <= FEWEST else self.starts)


def build(search: Search, goal: float, plan: BuildPlan, resume: State | None) -> None:
    """Rotations up to the budget of a search, or to ``goal``.

    Args:
        search: has to be without rotations, unless it is resumed.
        goal: stop at this value.
        plan: how much it may take.
        resume: a state that this function handed to the search's ``save``.
    """
    if not plan.steps:
        search.grow(goal)
        return
    objective = search.objective
    # A quality: then steps are short, so that the last goes not far beyond it.
    asked = goal > objective.rounding
    first = min(search.budget, int(FEW * objective.n)) if asked else math.ceil(plan.share * search.budget)
    steps, n_starts = plan.steps, min(plan.starts, len(objective.starts))
    trial = max(1, steps // TRIAL)
    for start in range(0 if resume is None else int(resume["start"]), n_starts + (n_starts > 1)):
        last = steps if start == n_starts or n_starts == 1 else trial
        if resume is not None:
            pairs, angles, value = (resume[f"current_{key}"] for key in ("pairs", "angles", "value"))
            value, step, resume = float(value), int(resume["step"]), None
        elif start == n_starts:  # the best of the starts goes on
            pairs, angles, value, step = search.pairs, search.angles, search.value, trial
        else:
            pairs, angles, value, step = np.zeros((0, 2), np.int64), np.zeros(0), search.history[0][2], 0

        def mark(*current: Any, start: int = start) -> None:
            names = ("step", "current_pairs", "current_angles", "current_value")
            search.mark("build", start=start, **dict(zip(names, current, strict=True)))

        if start < n_starts and not len(angles):
            mark(step, pairs, angles, value)
            pairs, angles = _begin(search, objective.starts[start], first)
            angles, value = _polished(search, pairs, angles)
        while value > goal and len(angles) < search.budget and (step < last or (asked and last == steps)):
            mark(step, pairs, angles, value)
            left = search.budget - len(angles)
            count = min(left, -(-objective.n // 2)) if asked else -(-left // (steps - step))
            pairs, more = _outside(search, pairs, angles, count)
            if len(more) == len(angles):  # nothing is left that would help
                break
            before = value
            (angles, value), step = _polished(search, pairs, more), step + 1
            if asked and value > (1 - GAIN) * before:
                break
        if value <= goal:
            break


def grow_few(search: Search, goal: float) -> None:
    """With few rotations, or for a quality that few may reach: grow greedily too, and take that if it is better."""
    few, asked = search.objective.few, goal > search.objective.rounding
    if search.budget > few and not asked:
        return
    trial = search.another(min(search.budget, few))
    trial.grow(goal)
    trial.polish(POLISH, POLISH_TOLERANCE)
    fewer = asked and trial.value <= goal and len(trial.angles) < len(search.angles)
    if fewer or trial.value < search.value:
        search.take(trial, "grow")


def _begin(search: Search, start: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rotations of a start, in pieces that can be interrupted."""
    objective, pairs, angles = search.objective, np.zeros((0, 2), np.int64), np.zeros(0)
    A, piece = objective.residual(pairs, angles), max(1, int(WORK_BETWEEN_REPORTS / (40.0 * objective.n)))
    while len(angles) < count:
        more, by = objective.begin(A, start, count - len(angles), piece)
        if not len(by):
            break
        pairs, angles = np.concatenate([pairs, more]), np.concatenate([angles, by])
        search.keep("grow", pairs, angles, objective.of_residual(A))
    return pairs, angles


def _outside(
    search: Search, pairs: np.ndarray, angles: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """With ``count`` rotations more: half in front of all others, if they promise anything there, the rest behind."""
    report = lambda: search.report("grow")
    front, by = search.objective.in_front(pairs, angles, -(-count // 2), THRESHOLD, report)
    pairs, angles = inserted(pairs, angles, 0, front, by)
    if count > len(by):
        report()
        behind = search.objective.behind(pairs, angles, count - len(by), THRESHOLD)
        pairs, angles = inserted(pairs, angles, len(pairs), *behind)
    return pairs, angles


def _polished(search: Search, pairs: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, float]:
    angles, value = search.polished(pairs, angles, "grow")
    search.keep("grow", pairs, angles, value)
    return angles, value
