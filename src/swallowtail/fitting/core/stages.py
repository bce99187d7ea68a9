"""The stages of a search for pairs on any objective, with a state at every boundary.

1. Build: a start, then additions in front and behind, polished (`core.build`).
2. Polish. L-BFGS on all angles together.
3. Trial, where there are many cycles: other buildings, each with some of the cycles, and the best goes on. How good a
   building is shows only after cycles.
4. Cycle. Take out the rotations that matter least (the exact loss of each is known), polish, put as many
   elsewhere, anywhere in Q, polish; or grow first and prune after. Small losses are accepted early on, as in
   annealing.
5. Shrink, where a quality was asked for: take out what it can be kept without.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from swallowtail.fitting.core.build import BuildPlan, build, grow_few
from swallowtail.fitting.core.records import Callback, Stop
from swallowtail.fitting.core.search import (
    FINISH,
    FINISH_TOLERANCE,
    POLISH,
    POLISH_TOLERANCE,
    SHORT,
    Search,
    State,
)
from swallowtail.fitting.core.searchable import Searchable

STAGES = ("build", "polish", "trial", "cycle", "shrink", "finish")
MANY = 40  # cycles are worth trials; with 13 or 23 they gain 2 % of the error and take a tenth more time
SHARE, MOST = 0.15, 160  # of the cycles for each trial, and how many: a trial has no states to go on from


def search_pairs(
    objective: Searchable,
    n_rotations: int,
    *,
    cycles: int,
    finish: int = FINISH,
    goal: float = -np.inf,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
    early: int = 0,
    polish: int = POLISH,
    plan: BuildPlan | None = None,
    others: tuple[BuildPlan, ...] = (),
) -> Search:
    """Build, polish and cycle on any objective.

    Args:
        objective: what to minimise.
        n_rotations, cycles, finish, seed, callback: as in `methods.pairs.fit_pairs`.
        goal: stop at this value, then take out the rotations it can be kept without.
        save: called with the state of the search at every boundary of a stage or a cycle. Its arrays are in
            use: write or copy them before returning.
        resume: such a state, of a search with the same arguments; the result is the one the undisturbed
            search gives, to the bit.
        early: so many cycles of a short search take out first, and put in before all others.
        polish: L-BFGS iterations in every step and cycle.
        plan: of `core.build`; by default what it finds worth while.
        others: plans to try as well, if there are cycles for it and no ``goal``.

    Returns:
        The search, whose ``pairs`` (K, 2), ``angles`` (K,), ``value`` and ``history`` are the best found.
    """
    search = Search(objective, n_rotations, callback, save, polish)
    stage = 0 if resume is None else STAGES.index(search.restore(resume))
    at_cycle = resume if stage == STAGES.index("cycle") else None
    try:
        if stage <= STAGES.index("build"):
            within = plan or BuildPlan().limited(objective.n)
            build(search, max(goal, objective.rounding), within, resume)
            grow_few(search, max(goal, objective.rounding))
        if stage <= STAGES.index("polish") and cycles:  # without cycles the finish follows at once
            search.mark("polish")
            search.polish(polish * (2 if early and cycles < SHORT else 3), POLISH_TOLERANCE)
        if others and cycles >= MANY and goal == -np.inf:
            share = min(MOST, round(SHARE * cycles))
            cycles -= (1 + len(others)) * share
            if stage <= STAGES.index("trial"):
                first = int(resume["index"]) if resume and stage == STAGES.index("trial") else 0
                _try(search, others, share, seed, early, first)
        if stage <= STAGES.index("cycle") and search.value > goal:
            search.cycle(cycles, seed, max(goal, objective.rounding), at_cycle, early)
        if stage <= STAGES.index("shrink") and search.value <= goal:
            search.shrink(goal)
        search.mark("finish")
        if finish:
            search.polish(finish, FINISH_TOLERANCE)
    except (Stop, KeyboardInterrupt):
        pass
    return search


def _try(
    search: Search, others: tuple[BuildPlan, ...], cycles: int, seed: int, early: int, first: int
) -> None:
    """Cycles for what was built and for other buildings; the best goes on."""
    rounding = search.objective.rounding
    for index in range(first, 1 + len(others)):
        search.mark("trial", index=index)
        trial = search.another()
        try:
            if index:
                build(trial, rounding, others[index - 1], None)
                trial.polish(3 * POLISH, POLISH_TOLERANCE)
            else:
                trial.pairs, trial.angles, trial.value = search.pairs, search.angles, search.value
            trial.cycle(cycles, seed + index, rounding, None, early)
        finally:
            if trial.value < search.value:
                search.take(trial, "trial")
