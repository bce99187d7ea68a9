"""The best product found so far, and the moves that improve it: grow, polish, cycle, shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.fitting.core.objectives import WORK_BETWEEN_REPORTS
from swallowtail.fitting.core.records import Callback
from swallowtail.fitting.core.searchable import Searchable

THRESHOLD = 0.1  # of the largest weight; 0.2 ends within 0.2° of it at n = 64
THRESHOLDS = (0.05, 0.1, 0.2, 0.5, 1.0)  # cycles vary it: another threshold, other pairs
SHARES = (4, 8, 16, 32)  # a cycle replaces K / share rotations
POLISH, FINISH = 7, 35  # L-BFGS iterations inside a cycle, and at the end
POLISH_TOLERANCE, FINISH_TOLERANCE = 1e-5, 1e-7
SHORT = 20  # cycles of a search that is too short for heat
HEAT = 0.03  # a cycle may be this much worse, relatively, at first; falls linearly to nothing
FINISH_WORK = 2.5e9  # multiply-adds a polish may take from n ≈ 1000 on

State = dict[str, Any]  # arrays, numbers, strings, and lists and dicts of the latter two


class Search:
    """The best product found so far, and the moves that improve it."""

    def __init__(
        self,
        objective: Searchable,
        n_rotations: int,
        callback: Callback | None,
        save: Callable[[State], None] | None,
        iterations: int = POLISH,
    ) -> None:
        self.objective, self.budget, self._callback, self._save = objective, n_rotations, callback, save
        self._iterations = iterations  # of L-BFGS, in every step and cycle
        self.pairs, self.angles = np.zeros((0, 2), np.int64), np.zeros(0)
        self.value = objective.of_residual(objective.residual(self.pairs, self.angles))
        self.history = [("start", 0, self.value)]

    def mark(self, stage: str, **more: Any) -> None:
        """Hand the state to ``save``."""
        if self._save is not None:
            best = {"pairs": self.pairs, "angles": self.angles, "value": self.value, "history": self.history}
            self._save({"stage": stage, **best, **more})

    def restore(self, state: State) -> str:
        """Take the best product from a state; returns its stage."""
        self.pairs, self.angles, self.value = state["pairs"], state["angles"], float(state["value"])
        self.history = [(str(stage), int(k), float(value)) for stage, k, value in state["history"]]
        return str(state["stage"])

    def another(self, budget: int | None = None) -> Search:
        """A search of its own on the same objective. It saves nothing, and reports this search's best."""
        budget = self.budget if budget is None else budget
        return Search(self.objective, budget, lambda *_: self.report("trial"), None, self._iterations)

    def take(self, other: Search, stage: str) -> None:
        """The other's best product instead of this search's own."""
        self.pairs, self.angles, self.value = other.pairs, other.angles, other.value
        self.history.append((stage, len(self.angles), self.value))

    def grow(self, goal: float) -> None:
        """Greedy growth up to the budget or ``goal``, in pieces that can be interrupted."""
        # Whole layers: a layer cut short changes those that follow, and at n = 4096 that cost a kernel 2°.
        piece = max(1, int(WORK_BETWEEN_REPORTS / (40.0 * self.objective.n)))
        if goal > self.objective.rounding:  # a quality was asked for: do not grow far beyond it
            piece = max(1, min(piece, self.budget // 16))
        A = self.objective.residual(self.pairs, self.angles)
        while len(self.angles) < self.budget and self.value > goal:
            most = self.budget - len(self.angles)
            pairs, angles = self.objective.grow(A, most, THRESHOLD, min(piece, most))
            if len(angles) == 0:
                break
            pairs, angles = np.concatenate([self.pairs, pairs]), np.concatenate([self.angles, angles])
            self.keep("grow", pairs, angles, self.objective.of_residual(A))

    def polish(self, iterations: int, tolerance: float) -> None:
        """L-BFGS on the best product."""
        pairs = self.pairs
        affordable = FINISH_WORK / (14.0 * self.objective.n * max(len(pairs), 1))
        iterations = min(iterations, max(12, int(affordable)))
        angles, value = self.objective.polish(
            pairs, self.angles, iterations, tolerance, lambda x, f: self.keep("polish", pairs, x, f)
        )
        self.keep("polish", pairs, angles, value)

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
            self.report("cycle")  # time may be up: the step that follows is long
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
                self.keep("cycle", pairs, angles, value)

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
                pairs, angles, 2 * POLISH, POLISH_TOLERANCE, lambda *_: self.report("shrink")
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
        value = np.inf
        for grow in (grow_first, not grow_first):
            if grow:
                pairs, angles = self.objective.regrow(pairs, angles, count, threshold, generator)
            else:
                pairs, angles = self._prune(pairs, angles, self.budget - (0 if grow_first else count))
            angles, value = self.polished(pairs, angles, "cycle")
        return pairs, angles, value

    def polished(self, pairs: np.ndarray, angles: np.ndarray, stage: str) -> tuple[np.ndarray, float]:
        """A product after a few iterations on all of its angles, and its objective."""
        return self.objective.polish(
            pairs, angles, self._iterations, POLISH_TOLERANCE, lambda *_: self.report(stage)
        )

    def _prune(self, pairs: np.ndarray, angles: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keep the ``count`` rotations whose removal would cost most."""
        order = np.argsort(-self.objective.removal_losses(pairs, angles), kind="stable")
        kept = np.sort(order[: max(count, 0)])
        return np.ascontiguousarray(pairs[kept]), angles[kept]

    def keep(self, stage: str, pairs: np.ndarray, angles: np.ndarray, value: float) -> None:
        """Remember a product if it is the best yet and within the budget; tell the callback."""
        if value < self.value and len(angles) <= self.budget:
            self.pairs, self.angles, self.value = pairs, angles, value
            self.history.append((stage, len(angles), value))
        self.report(stage)

    def report(self, stage: str) -> None:
        """Tell the callback, which may raise to interrupt."""
        if self._callback is not None:
            self._callback(stage, len(self.angles), self.value)
