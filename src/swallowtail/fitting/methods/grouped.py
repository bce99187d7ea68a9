"""Pairs chosen from the data in rounds of small groups: the fit of `methods.pairs`, with a `Grouped` wiring.

The same steps, with every rotation confined to its round's groups. Growth comes in two kinds, and which one suits a
matrix shows after the polish only: both are tried. Cycles put new rotations anywhere in a round whose groups have room
for them, and between rounds while there may be more of those.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from swallowtail.fitting.core.confined import cluster, grow_clusters, grow_round
from swallowtail.fitting.core.groups import apart, meeting, round_starts
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.objectives import NEWTON_SHARE, Objective, place
from swallowtail.fitting.core.product import MATRIX, layered, rotate_rows
from swallowtail.fitting.core.records import Callback, DenseFit, Stop
from swallowtail.fitting.core.search import POLISH, POLISH_TOLERANCE, STAGES, Search, State, search_pairs
from swallowtail.fitting.methods.pairs import EFFORTS, default_cycles
from swallowtail.wiring import Grouped

# Fewer rounds are faster to apply: 8 cost a heat kernel 16 % of its angle, and MNIST nothing.
SIZE, ROUNDS = 16, 16
GROWTHS = ("pairs", "clusters")


def fit_grouped(
    H: np.ndarray,
    n_rotations: int,
    *,
    size: int = SIZE,
    n_rounds: int = ROUNDS,
    target: str = "matrix",
    effort: str = "default",
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
        n_rounds: growth spreads the rotations evenly over this many rounds; where groups are too small for their
            share it takes more.
        target, effort, cycles, finish, target_error, seed, callback, save, resume: as in `methods.pairs.fit_pairs`.

    Returns:
        As `methods.pairs.fit_pairs`, with a `Grouped` wiring.

    >>> fit_grouped(np.array([[2.0, 1.0], [1.0, 2.0]]), 1).wiring
    Grouped(n=2): 1 round of groups up to 2, 1 layers, 1 rotations
    """
    n = len(H)
    goal = -np.inf if target_error is None or target != "matrix" else target_error**2
    grown, stopped = None, False
    if resume is None or resume["stage"] in STAGES[: STAGES.index("cycle")]:  # both growths take little time
        resume = None
        grown, stopped = _grown(H, n_rotations, size, n_rounds, target, goal, callback, save)
    best = (
        grown
        if stopped and grown is not None
        else search_pairs(
            Confined(H, target, n_rotations, size, n_rounds, GROWTHS[0])
            if grown is None
            else grown.objective,
            n_rotations,
            cycles=default_cycles(n, n_rotations, effort) if cycles is None else cycles,
            finish=EFFORTS[effort].finish if finish is None else finish,
            goal=goal,
            seed=seed,
            callback=callback,
            save=save,
            resume=resume,
            grown=grown,
        )
    )
    wiring, angles = in_rounds(n, best.pairs, best.angles, size)
    d = Objective(H, target).eigenvalues(best.pairs, best.angles)
    return DenseFit(wiring, angles, d, best.history)


def _grown(
    H: np.ndarray,
    n_rotations: int,
    size: int,
    n_rounds: int,
    target: str,
    goal: float,
    callback: Callback | None,
    save: Callable[[State], None] | None,
) -> tuple[Search, bool]:
    """The better one of both growths, polished, and whether the callback has stopped them."""
    best: Search | None = None
    stopped = False
    for growth in GROWTHS:
        if stopped:
            break
        objective = Confined(H, target, n_rotations, size, n_rounds, growth)
        search = Search(objective, n_rotations, callback, save)
        try:
            search.grow(max(goal, objective.rounding), None)
            search.polish(POLISH * 3, POLISH_TOLERANCE)
        except (Stop, KeyboardInterrupt):
            stopped = True
        best = search if best is None or search.value < best.value else best
    assert best is not None
    return best, stopped


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


class Confined(Objective):
    """An `Objective` whose new rotations keep the sequence in ``n_rounds`` rounds of groups of at most ``size``."""

    def __init__(
        self, H: np.ndarray, target: str, n_rotations: int, size: int, n_rounds: int, growth: str
    ) -> None:
        super().__init__(H, target)
        self.budget, self.size, self.n_rounds, self.growth = n_rotations, size, n_rounds, growth
        self._least = 1e-32 * (self.norm2 if self.target == MATRIX else 1.0)

    def grow(
        self, A: np.ndarray, count: int, threshold: float, enough: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        done = self.budget - count  # of equal shares, one per round
        share = next(s for r in range(self.n_rounds) if (s := self.budget * (r + 1) // self.n_rounds) > done)
        label, sizes = apart(self.n)
        if self.growth == "pairs":
            return self._grow_round(A, share - done, threshold, label, sizes)
        q = 1.0 if self.target == MATRIX else 1.0 / np.sqrt(np.maximum(np.diagonal(A), self.floor))
        cluster((A * q * np.reshape(q, (-1, 1))) ** 2, self.size, label, sizes)
        return grow_clusters(A, label, share - done, self.target, self.floor, self._least)

    def _grow_round(
        self, A: np.ndarray, count: int, threshold: float, label: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rotations on the residual A in groups that grow from those given."""
        return grow_round(A, label, sizes, self.size, count, threshold, self.target, self.floor, self._least)

    def regrow(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        at = place(len(pairs), generator)
        if at < len(pairs):
            pairs, angles, groups = self._opened(pairs, angles, at)
            M, B = self.residual(pairs[:at], angles[:at]), np.eye(self.n)
            rotate_rows(B, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
            layers = max(1, int(NEWTON_SHARE * len(pairs) / self.n**2))
            more, by = newton_rotations(
                M, B, count, layers, threshold, self.target, self.floor, *groups, self.size
            )
            pairs = np.concatenate([pairs[:at], more, pairs[at:]])
            angles, count = np.concatenate([angles[:at], by, angles[at:]]), count - len(by)
        if count > 0:  # the rest at the end, in a new round or in the groups of the last
            starts = round_starts(pairs, self.n, self.size)
            groups = meeting(pairs[starts[-2] :], self.n) if len(starts) > self.n_rounds else apart(self.n)
            more, by = self._grow_round(self.residual(pairs, angles), count, threshold, *groups)
            pairs, angles = np.concatenate([pairs, more]), np.concatenate([angles, by])
        return pairs, angles

    def _opened(
        self, pairs: np.ndarray, angles: np.ndarray, at: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The sequence with the round at ``at`` in the order of its layers, and the groups new rotations may join.

        In that order a place inside a round is inside all of its groups.
        """
        starts = round_starts(pairs, self.n, self.size)
        r = int(np.searchsorted(starts, at, side="right")) - 1
        here = slice(int(starts[r]), int(starts[r + 1]))
        wiring, turned = layered(self.n, pairs[here], angles[here])
        pairs, angles = pairs.copy(), angles.copy()
        pairs[here], angles[here] = wiring.pairs, turned
        parted = len(starts) + 1  # rounds, if new ones stand between: theirs, and this one in two
        return pairs, angles, apart(self.n) if parted <= self.n_rounds else meeting(wiring.pairs, self.n)
