"""The search for pairs on any objective: grow, polish, cycle, shrink, finish, with a state at every boundary.

1. Grow. Greedy growth, a layer of disjoint pairs at a time.
2. Polish. L-BFGS on all angles together.
3. Cycle. Take out the rotations that matter least (the exact loss of each is known), polish, put as many
   elsewhere, anywhere in Q, polish; or grow first and prune after. Small losses are accepted early on, as in
   annealing.
4. Shrink, where a quality was asked for: take out what it can be kept without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.fitting.core.objectives import WORK_BETWEEN_REPORTS, Searched
from swallowtail.fitting.core.records import Callback, Stop

THRESHOLD = 0.1  # of the largest weight; 0.2 ends within 0.2° of it at n = 64
THRESHOLDS = (0.05, 0.1, 0.2, 0.5, 1.0)  # cycles vary it: another threshold, other pairs
SHARES = (4, 8, 16, 32)  # a cycle replaces K / share rotations
POLISH, FINISH = 7, 35  # L-BFGS iterations inside a cycle, and at the end
POLISH_TOLERANCE, FINISH_TOLERANCE = 1e-5, 1e-7
WORTH = 0.96  # times the squared error: a start with equal entries told apart is taken if it leaves no more
SHORT = 20  # cycles of a search that is too short for heat
HEAT = 0.03  # a cycle may be this much worse, relatively, at first; falls linearly to nothing
FINISH_WORK = 2.5e9  # multiply-adds a polish may take from n ≈ 1000 on
STAGES = ("grow", "polish", "cycle", "shrink", "finish")

State = dict[str, Any]  # arrays, numbers, strings, and lists and dicts of the latter two


def search_pairs(
    objective: Searched,
    n_rotations: int,
    *,
    cycles: int,
    finish: int = FINISH,
    goal: float = -np.inf,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
    grown: Search | None = None,
    early: int = 0,
) -> Search:
    """Grow, polish and cycle on any objective.

    Args:
        objective: what to minimise.
        n_rotations, cycles, finish, seed, callback: as in `methods.pairs.fit_pairs`.
        goal: stop at this value, then take out the rotations it can be kept without.
        save: called with the state of the search at every boundary of a stage or a cycle. Its arrays are in
            use: write or copy them before returning.
        resume: such a state, of a search with the same arguments; the result is the one the undisturbed
            search gives, to the bit.
        grown: a search on this objective that has been grown and polished; it goes on from there.
        early: so many cycles of a short search take out first, and put in before all others.

    Returns:
        The search, whose ``pairs`` (K, 2), ``angles`` (K,), ``value`` and ``history`` are the best found.
    """
    search = grown or Search(objective, n_rotations, callback, save)
    stage = 0 if grown is None else STAGES.index("cycle")
    stage = stage if resume is None else search.restore(resume)
    at_cycle = resume if stage == STAGES.index("cycle") else None
    try:
        if stage <= STAGES.index("grow"):
            search.grow(max(goal, objective.rounding), None if resume is None else resume["residual"])
        if stage <= STAGES.index("polish") and cycles:  # without cycles the finish follows at once
            search.mark("polish")
            search.polish(POLISH * (2 if early and cycles < SHORT else 3), POLISH_TOLERANCE)
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


class Search:
    """The best product found so far, and the moves that improve it."""

    def __init__(
        self,
        objective: Searched,
        n_rotations: int,
        callback: Callback | None,
        save: Callable[[State], None] | None,
    ) -> None:
        self.objective, self.budget, self._callback, self._save = objective, n_rotations, callback, save
        self.pairs, self.angles = np.zeros((0, 2), np.int64), np.zeros(0)
        self.value = objective.of_residual(objective.residual(self.pairs, self.angles))
        self.history = [("start", 0, self.value)]

    def mark(self, stage: str, **more: Any) -> None:
        """Hand the state to ``save``."""
        if self._save is not None:
            best = {"pairs": self.pairs, "angles": self.angles, "value": self.value, "history": self.history}
            self._save({"stage": stage, **best, **more})

    def restore(self, state: State) -> int:
        """Take the best product from a state; returns the number of its stage."""
        self.pairs, self.angles, self.value = state["pairs"], state["angles"], float(state["value"])
        self.history = [(str(stage), int(k), float(value)) for stage, k, value in state["history"]]
        return STAGES.index(state["stage"])

    def grow(self, goal: float, residual: np.ndarray | None) -> None:
        """Greedy growth up to the budget or ``goal``, in pieces that can be interrupted."""
        # Whole layers: a layer cut short changes those that follow, and at n = 4096 that cost a kernel 2°.
        piece = max(1, int(WORK_BETWEEN_REPORTS / (40.0 * self.objective.n)))
        if goal > self.objective.rounding:  # a quality was asked for: do not grow far beyond it
            piece = max(1, min(piece, self.budget // 16))
        A = self._begin(goal, piece) if residual is None else residual.copy()
        self._grow_on(A, self.budget, goal, piece, lambda: self.mark("grow", residual=A))

    def _begin(self, goal: float, piece: int) -> Any:
        """The residual that growth goes on from: that of no rotations, or where entries are equal of the first n.

        Those are grown twice, from H and from H with its equal entries told apart, and the better ones stay. Nothing is
        handed to ``save`` before that is decided.
        """
        A, other = self.objective.residual(self.pairs, self.angles), self.objective.told_apart()
        if other is None:
            return A
        first = min(self.budget, self.objective.n)
        self._grow_on(A, first, goal, piece)
        if self.value <= goal:
            return A
        trial = Search(self.objective, self.budget, lambda *_: self._tick("grow")(self.angles, 0.0), None)
        trial._grow_on(other, first, goal, piece)
        if trial.value > WORTH * self.value:
            return A
        # Of H itself, so that no error of the telling apart stays.
        A = self.objective.residual(trial.pairs, trial.angles)
        self._keep("grow", trial.pairs, trial.angles, self.objective.of_residual(A))
        return A

    def _grow_on(
        self, A: Any, count: int, goal: float, piece: int, after: Callable[[], None] = lambda: None
    ) -> None:
        """Grow to ``count`` rotations or more, or ``goal``; A is the product's residual, and becomes the new one."""
        while len(self.angles) < count and self.value > goal:
            enough, most = min(piece, count - len(self.angles)), self.budget - len(self.angles)
            pairs, angles = self.objective.grow(A, most, THRESHOLD, enough)
            if len(angles) == 0:
                break
            pairs, angles = np.concatenate([self.pairs, pairs]), np.concatenate([self.angles, angles])
            self._keep("grow", pairs, angles, self.objective.of_residual(A))
            after()

    def polish(self, iterations: int, tolerance: float) -> None:
        """L-BFGS on the best product."""
        pairs = self.pairs
        affordable = FINISH_WORK / (14.0 * self.objective.n * max(len(pairs), 1))
        iterations = min(iterations, max(12, int(affordable)))
        angles, value = self.objective.polish(
            pairs, self.angles, iterations, tolerance, lambda x, f: self._keep("polish", pairs, x, f)
        )
        self._keep("polish", pairs, angles, value)

    def cycle(self, cycles: int, seed: int, goal: float, state: State | None, early: int = 0) -> None:
        """Prune and regrow, ``cycles`` times over or until ``goal`` is reached."""
        generator = np.random.default_rng(seed)
        pairs, angles, value, first = self.pairs, self.angles, self.value, 0
        if state is not None:
            generator.bit_generator.state = state["generator"]
            pairs, angles = state["current_pairs"], state["current_angles"]
            value, first = float(state["current_value"]), int(state["index"])
        # A short search has no time to come back from a worse place, nor for small moves.
        heat, shares, early = (HEAT, SHARES, 0) if cycles >= SHORT else (0.0, SHARES[:2], early)
        for index in range(first, cycles):
            self.mark(
                "cycle",
                index=index,
                generator=generator.bit_generator.state,
                current_pairs=pairs,
                current_angles=angles,
                current_value=value,
            )
            if self.value <= goal or not len(angles):
                break
            self._tick("cycle")(angles, value)  # time may be up: the step that follows is long
            count = max(1, self.budget // int(generator.choice(shares)))
            threshold, grow_first = float(generator.choice(THRESHOLDS)), bool(generator.integers(2))
            if index < early:
                count = max(1, self.budget // shares[index % len(shares)])
                threshold, grow_first = THRESHOLDS[index % len(THRESHOLDS)], False
            new_pairs, new_angles, new_value = self._replace(
                pairs, angles, count, threshold, grow_first, generator if index >= early else None
            )
            if new_value < value + heat * (1.0 - index / cycles) * abs(value):
                pairs, angles, value = new_pairs, new_angles, new_value
                self._keep("cycle", pairs, angles, value)

    def shrink(self, goal: float) -> None:
        """Take out rotations as long as the objective stays below ``goal``."""
        while len(self.angles) and self.value <= goal:
            self.mark("shrink")
            losses = np.sort(self.objective.removal_losses(self.pairs, self.angles))
            count = int(np.searchsorted(np.cumsum(np.maximum(losses, 0.0)), goal - self.value))
            if count == 0:
                return
            pairs, angles = self._prune(self.pairs, self.angles, len(self.angles) - count)
            angles, value = self.objective.polish(
                pairs, angles, 2 * POLISH, POLISH_TOLERANCE, self._tick("shrink")
            )
            if value > goal:
                return
            self.pairs, self.angles, self.value = pairs, angles, value
            self.history.append(("shrink", len(angles), value))

    def _replace(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        grow_first: bool,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """``count`` rotations out and as many in, polished after each."""
        tick = self._tick("cycle")
        value = np.inf
        for grow in (grow_first, not grow_first):
            if grow:
                pairs, angles = self.objective.regrow(pairs, angles, count, threshold, generator)
            else:
                pairs, angles = self._prune(pairs, angles, self.budget - (0 if grow_first else count))
            angles, value = self.objective.polish(pairs, angles, POLISH, POLISH_TOLERANCE, tick)
        return pairs, angles, value

    def _prune(self, pairs: np.ndarray, angles: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keep the ``count`` rotations whose removal would cost most."""
        order = np.argsort(-self.objective.removal_losses(pairs, angles), kind="stable")
        kept = np.sort(order[: max(count, 0)])
        return np.ascontiguousarray(pairs[kept]), angles[kept]

    def _keep(self, stage: str, pairs: np.ndarray, angles: np.ndarray, value: float) -> None:
        """Remember a product if it is the best yet and within the budget; tell the callback."""
        if value < self.value and len(angles) <= self.budget:
            self.pairs, self.angles, self.value = pairs, angles, value
            self.history.append((stage, len(angles), value))
        self._tick(stage)(angles, value)

    def _tick(self, stage: str) -> Callable[[np.ndarray, float], None]:
        def tick(angles: np.ndarray, value: float) -> None:
            if self._callback is not None:
                self._callback(stage, len(self.angles), self.value)

        return tick
