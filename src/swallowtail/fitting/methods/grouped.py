"""Pairs chosen from the data in rounds of small groups: the fit of `methods.pairs`, with a `Grouped` wiring.

The same steps, with every rotation confined to its round's groups. A building begins with one round; each of its steps
adds a round in front and one behind while there may be more of those, and joins the outer groups from then on. So few
rounds, or many rotations, do not suit it. Growing round by round, with as many rotations in each, is always tried too.
Cycles put new rotations anywhere in a round whose groups have room for them, and between rounds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from swallowtail.fitting.core.confined import cluster, grow_clusters, grow_round
from swallowtail.fitting.core.groups import Groups, apart, joined, meeting, round_starts
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import MATRIX, layered
from swallowtail.fitting.core.records import Callback, DenseFit
from swallowtail.fitting.core.search import State
from swallowtail.fitting.core.searchable import Diagonalised, Report
from swallowtail.fitting.core.stages import search_pairs
from swallowtail.fitting.methods.pairs import EFFORTS, default_cycles
from swallowtail.wiring import Grouped

# Fewer rounds are faster to apply: 8 cost a heat kernel 16 % of its angle, and MNIST nothing.
SIZE, ROUNDS = 16, 16


def fit_grouped(
    H: np.ndarray,
    n_rotations: int,
    *,
    size: int = SIZE,
    n_rounds: int = ROUNDS,
    target: str = "matrix",
    effort: str = "default",
    steps: int | None = None,
    cycles: int | None = None,
    finish: int | None = None,
    target_error: float | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
) -> DenseFit:
    """Fit H ≈ Q D Qᵀ with ``n_rotations`` rotations in rounds of groups chosen from H.

    Args:
        H: symmetric, shape (n, n).
        n_rotations: the budget K; fewer are used when H is diagonal before that.
        size: coordinates a group may have.
        n_rounds: of rotations; there are more where groups are too small for an even share of the rotations, or
            for the quality asked for.
        target, effort, steps, cycles, finish, target_error, seed, callback, save, resume: as in
            `methods.pairs.fit_pairs`.

    Returns:
        As `methods.pairs.fit_pairs`, with a `Grouped` wiring.

    >>> fit_grouped(np.array([[2.0, 1.0], [1.0, 2.0]]), 1).wiring
    Grouped(n=2): 1 round of groups up to 2, 1 layers, 1 rotations
    """
    n = len(H)
    goal = -np.inf if target_error is None or target != "matrix" else target_error**2
    objective = ConfinedObjective(H, target, n_rotations, size, n_rounds)
    best = search_pairs(
        objective,
        n_rotations,
        cycles=default_cycles(n, n_rotations, effort) if cycles is None else cycles,
        goal=goal,
        seed=seed,
        callback=callback,
        save=save,
        resume=resume,
        **EFFORTS[effort].of_search(n, steps, finish),
    )
    wiring, angles = in_rounds(n, best.pairs, best.angles, size)
    d = objective.eigenvalues(best.pairs, best.angles)
    return DenseFit(wiring, angles, d, best.history)


def in_rounds(n: int, pairs: np.ndarray, angles: np.ndarray, size: int) -> tuple[Grouped, np.ndarray]:
    """A sequence of rotations as a `Grouped` wiring of as few rounds as its order allows, and its angles."""
    rounds, listed = [], [np.arange(0)]
    for start, stop in pairwise(round_starts(pairs, n, size).tolist()):
        label, count = meeting(pairs[start:stop], n)
        home = label[pairs[start:stop, 0]]
        groups = []
        for q in np.flatnonzero(count > 1):
            own = start + np.flatnonzero(home == q)
            groups.append((np.flatnonzero(label == q), pairs[own]))
            listed.append(own)
        rounds.append(groups)
    wiring, order = Grouped.from_listing(n, rounds)
    return wiring, angles[np.concatenate(listed)[order]]


class Confined(Diagonalised):
    """An objective whose new rotations keep the sequence in ``n_rounds`` rounds of groups of at most ``size``.

    What is common to matrices here (`ConfinedObjective`) and on a device (`device.confined`).
    """

    def confine(self, n_rotations: int, size: int, n_rounds: int) -> None:
        """Set the limits; ``n_rotations`` are those of the whole fit."""
        self.budget, self.size, self.n_rounds = n_rotations, size, n_rounds

    @property
    def few(self) -> int:
        return self.budget

    @property
    def share(self) -> int:
        """A round's share of the rotations."""
        return -(-self.budget // self.n_rounds)

    @abstractmethod
    def grow_round(
        self, A: Any, count: int, threshold: float, groups: Groups
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rotations on the residual A, which they change, in groups that grow from those given."""

    def in_front(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.newton(pairs, angles, 0, count, 1, threshold, self._groups(pairs, 0), report)

    def behind(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.grow_round(self.residual(pairs, angles), count, threshold, self._groups(pairs, -1))

    def _groups(self, pairs: np.ndarray, which: int) -> Groups:
        """What new rotations may join outside a round: a round of their own, or its groups if there are too many."""
        starts = round_starts(pairs, self.n, self.size)
        if len(starts) <= self.n_rounds:
            return apart(self.n, self.size)
        here = slice(starts[0], starts[1]) if which == 0 else slice(starts[-2], starts[-1])
        return joined(pairs[here], self.n, self.size)

    def opened(
        self, pairs: np.ndarray, angles: np.ndarray, at: int
    ) -> tuple[np.ndarray, np.ndarray, Groups | None]:
        """The sequence with the round at ``at`` in the order of its layers, and the groups new rotations may join.

        In that order a place inside a round is inside all of its groups.
        """
        starts = round_starts(pairs, self.n, self.size)
        r = int(np.searchsorted(starts, at, side="right")) - 1
        here = slice(int(starts[r]), int(starts[r + 1]))
        wiring, turned = layered(self.n, pairs[here], angles[here])
        pairs, angles = pairs.copy(), angles.copy()
        pairs[here], angles[here] = wiring.indices, turned
        parted = len(starts) + 1  # rounds, if new ones stand between: theirs, and this one in two
        if parted <= self.n_rounds:
            return pairs, angles, apart(self.n, self.size)
        return pairs, angles, joined(wiring.indices, self.n, self.size)


class ConfinedObjective(Confined, Objective):
    """An `Objective` in rounds of groups."""

    starts = ("pairs", "clusters")

    def __init__(self, H: np.ndarray, target: str, n_rotations: int, size: int, n_rounds: int) -> None:
        Objective.__init__(self, H, target)
        self.confine(n_rotations, size, n_rounds)

    def grow(
        self, A: np.ndarray, count: int, threshold: float, enough: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """One round with its share of the rotations, begun in the way that leaves less."""
        share, ways = min(count, self.share), []
        for start in self.starts:
            left = A.copy()
            ways.append((left, *self.begin(left, start, share, 0)))
        left, pairs, angles = min(ways, key=lambda way: self.of_residual(way[0]))
        A[:] = left
        return pairs, angles

    def begin(self, A: np.ndarray, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        if start == "pairs":
            return self.grow_round(A, count, 0.0, apart(self.n, self.size))
        label, sizes, _ = apart(self.n, self.size)
        q = 1.0 if self.target == MATRIX else 1.0 / np.sqrt(np.maximum(np.diagonal(A), self.floor))
        cluster((A * q * np.reshape(q, (-1, 1))) ** 2, self.size, label, sizes)
        return grow_clusters(A, label, count, self.target, self.floor, self._least)

    def grow_round(
        self, A: np.ndarray, count: int, threshold: float, groups: Groups
    ) -> tuple[np.ndarray, np.ndarray]:
        return grow_round(A, *groups, count, threshold, self.target, self.floor, self._least)
