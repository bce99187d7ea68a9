"""Any pairs as steps of small groups, for `gluon.rounds`: which coordinates a warp multiplies, by which rotations.

A wiring comes in rounds of groups, or is put into such rounds. Groups that are small share a warp. A group stands in
the first step with room after those that it must follow.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from swallowtail.kernels.cpu.schedule import schedule
from swallowtail.wiring import Grouped, Pairs, Wiring
from swallowtail.wiring.groups import components

SPARE = 4  # rows of shared memory that stand for no coordinate


class Shape(NamedTuple):
    """Groups per step and their size, with what a product costs in copies of the vectors.

    The costs are those of Q x in float32 on an H200, n = 784.
    """

    size: int  # coordinates per group, at most
    warps: int  # groups per step
    fixed: float
    per_step: float

    def cost(self, steps: int) -> float:
        """Of so many steps."""
        return self.fixed + steps * self.per_step


# Eight groups at a time, unless a wiring has few that may go together; large groups where they save many steps.
SHAPES = (Shape(16, 8, 0.9, 0.064), Shape(16, 4, 1.33, 0.05), Shape(32, 4, 1.05, 0.111))
# For vectors of which a program holds only eight; measured at n = 4096.
LONG_SHAPES = (Shape(16, 16, 2.2, 0.073),)


class RoundPlan(NamedTuple):
    """Groups of coordinates, in steps of disjoint ones, Q₁'s first.

    Partners and angles are those of `group_plan.GroupPlan`.
    """

    shape: Shape
    coordinates: np.ndarray  # shape: (steps · warps, size), int32; −1: none
    partner: np.ndarray  # shape: (L, steps · warps, size), int32
    angle: np.ndarray  # shape: (L, steps · warps, size), int32

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.coordinates) // self.shape.warps


class Bin:
    """What one warp does in one step."""

    def __init__(self) -> None:
        self.coordinates: list[int] = []
        self.rotations: list[int] = []


@lru_cache(maxsize=32)
def round_plan(wiring: Pairs, shapes: tuple[Shape, ...]) -> RoundPlan:
    """The plan of the shape that costs least."""
    groups = {size: in_groups(wiring, size) for size in {shape.size for shape in shapes}}
    steps = {shape: packed(groups[shape.size][0], shape.size, shape.warps) for shape in shapes}
    best = min(shapes, key=lambda shape: shape.cost(len(steps[shape])))
    return _tables(best, steps[best], *groups[best.size])


def in_groups(wiring: Wiring, size: int) -> tuple[Grouped, np.ndarray]:
    """The wiring in groups of at most ``size`` coordinates, and the order in which to take its angles."""
    if isinstance(wiring, Grouped) and wiring.size <= size:
        return wiring, np.arange(wiring.n_rotations)
    return schedule(wiring, size)


def _tables(shape: Shape, steps: list[list[Bin]], grouped: Grouped, order: np.ndarray) -> RoundPlan:
    """The coordinates, partners and angles of every bin."""
    size, warps = shape.size, shape.warps
    coordinates = np.full((len(steps) * warps, size), -1, np.int32)
    bins = list[tuple[int, Bin]]()
    for s, each in enumerate(steps):
        for w, found in enumerate(each):
            coordinates[s * warps + w] = _spread(found.coordinates, size)
            bins.append((s * warps + w, found))
    return RoundPlan(shape, coordinates, *level_tables(coordinates, bins, grouped, order))


def level_tables(
    coordinates: np.ndarray, bins: list[tuple[int, Bin]], grouped: Grouped, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # shape of both: (L, Q, size), int32
    """Partners and angles of the bins, which have their coordinates at these places, (Q, size)."""
    count, size = coordinates.shape
    where = list[tuple[int, int, int, int]]()  # level, bin, and both places of each rotation
    numbers = list[int]()
    for q, found in bins:
        place = {c: at for at, c in enumerate(coordinates[q].tolist()) if c >= 0}
        reached = dict.fromkeys(place, 0)
        for k in found.rotations:
            i, j = grouped.pairs[k].tolist()
            level = max(reached[i], reached[j])
            reached[i] = reached[j] = level + 1
            where.append((level, q, place[i], place[j]))
            numbers.append(int(order[k]) + 1)
    levels, owner, first, second = np.array(where, np.int64).reshape(-1, 4).T
    table = (int(levels.max(initial=-1)) + 1, count, size)
    partner = np.broadcast_to(np.arange(size, dtype=np.int32), table).copy()
    angle = np.zeros(table, np.int32)
    number = np.array(numbers, np.int32)
    partner[levels, owner, first], partner[levels, owner, second] = second, first
    angle[levels, owner, first], angle[levels, owner, second] = -number, number
    return partner, angle


def packed(wiring: Grouped, size: int, warps: int) -> list[list[Bin]]:
    """Steps of bins: each group in the first step with room after those of its coordinates."""
    steps = list[list[Bin]]()
    ready = np.zeros(wiring.n, np.int64)
    for first, last in pairwise(wiring.round_layers.tolist()):
        numbers = np.arange(wiring.offsets[first], wiring.offsets[last])
        if not len(numbers):
            continue
        label = np.full(wiring.n, -1)
        found = components(wiring.n, [wiring.pairs[numbers]])
        for q, group in enumerate(found):
            label[group] = q
        home = label[wiring.pairs[numbers, 0]]
        by_group = np.split(numbers[np.argsort(home, kind="stable")], np.cumsum(np.bincount(home))[:-1])
        # Large groups first: small ones then fill what is left.
        for q in sorted(range(len(found)), key=lambda q: -len(found[q])):
            group, s = found[q], int(ready[found[q]].max())
            while True:
                if s == len(steps):
                    steps.append([])
                chosen = next((b for b in steps[s] if len(b.coordinates) + len(group) <= size), None)
                if chosen is None and len(steps[s]) < warps:
                    chosen = Bin()
                    steps[s].append(chosen)
                if chosen is not None:
                    break
                s += 1
            chosen.coordinates += group.tolist()
            chosen.rotations += by_group[q].tolist()
            ready[group] = s + 1
    return steps


def slots(coordinates: np.ndarray) -> np.ndarray:
    """The row of shared memory of each coordinate, as in `gluon.rounds`."""
    return (coordinates & -4) | ((coordinates + (coordinates >> 2)) & 3)


def places(plan: RoundPlan, n: int, lanes: int) -> np.ndarray:  # shape: (steps · warps, size), int32
    """Where the row of each place of the plan begins, in bytes, as in `gluon.rounds`; a spare row for no coordinate."""
    slot = _slots_of(plan, n)
    quarter = {32: slot & 3, 16: (slot & 2) // 2, 8: 0 * slot}[lanes]
    return (slot * (4 * lanes) + 32 * quarter).astype(np.int32)


def wide_places(plan: RoundPlan, n: int, lanes: int) -> np.ndarray:  # shape: (steps · warps, size), int32
    """The same for rows of two numbers per vector, as in `gluon.round_gradients`."""
    slot = _slots_of(plan, n)
    return (slot * (8 * lanes) + 64 * (slot & 1) + 16 * (slot & 2)).astype(np.int32)


def _slots_of(plan: RoundPlan, n: int) -> np.ndarray:  # shape: (steps · warps, size)
    """The row of each place of a plan; a spare one for no coordinate."""
    spare = -(-n // 16) * 16 + _residues(plan.shape.size)[None]
    return np.where(plan.coordinates < 0, spare, slots(plan.coordinates))


def _residues(size: int) -> np.ndarray:
    """The residue modulo 4 that the row at each place should have: then no two of a warp's accesses share a bank.

    A warp reads places 2 apart together, 4 apart in groups of 32, and writes four neighbours together.
    """
    at = np.arange(size)
    return (at ^ at // 4) % 4 if size == 16 else (at + at // 4) % 4


def _spread(coordinates: list[int], size: int) -> np.ndarray:  # shape: (size,), −1: none
    """Put coordinates into the places whose residue they have, as far as possible."""
    result, wanted, left = np.full(size, -1), _residues(size), list[int]()
    free = [list(np.flatnonzero(wanted == r)[::-1]) for r in range(4)]
    for c in coordinates:
        room = free[int(slots(np.array(c))) & 3]
        if room:
            result[room.pop()] = c
        else:
            left.append(c)
    result[np.flatnonzero(result < 0)[: len(left)]] = left
    return result
