"""Any wiring as steps of groups of 16 coordinates, for `gluon.half_rounds`: what each warp does, and where rows lie."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from swallowtail.kernels.cpu.spread import swap
from swallowtail.kernels.gpu.gluon.pieces import TURNED
from swallowtail.kernels.gpu.round_plan import Bin, in_groups, level_tables, packed
from swallowtail.wiring import Wiring

SIZE = 16  # coordinates of a group
SPARE = 8  # rows of shared memory that stand for no coordinate
BANKS = 8  # pieces of eight numbers that shared memory gives at a time
PASSES = 60  # over all octets, to spread rows over banks


class HalfPlan(NamedTuple):
    """Groups in steps of disjoint ones, Q₁'s first. Partners and angles are those of `group_plan.GroupPlan`."""

    warps: int  # groups per step
    coordinates: np.ndarray  # shape: (steps · warps, 16), int32; −1: none
    partner: np.ndarray  # shape: (L, steps · warps, 16), int32
    angle: np.ndarray  # shape: (L, steps · warps, 16), int32
    inner: int  # the first of the last steps, if no two of these share a coordinate and they have all; else `steps`
    slot: np.ndarray  # shape: (n rounded up to a multiple of 32,): the row of each coordinate

    @property
    def steps(self) -> int:
        return len(self.coordinates) // self.warps


@lru_cache(maxsize=32)
def half_plan(wiring: Wiring, warps: int, complete: bool) -> HalfPlan:
    """The plan of a wiring; ``complete``: every coordinate is in some group, though no rotation needs it there."""
    grouped, order = in_groups(wiring, SIZE)
    steps = packed(grouped, SIZE, warps)
    if complete:
        _add_missing(steps, wiring.n, warps)
    bins = [(s * warps + w, found) for s, each in enumerate(steps) for w, found in enumerate(each)]
    members = np.full((len(steps) * warps, SIZE), -1, np.int32)
    for q, found in bins:
        members[q, : len(found.coordinates)] = found.coordinates
    slot = spread_rows(members, wiring.n)
    coordinates = np.array([_in_halves(row[row >= 0], slot) for row in members], np.int32).reshape(-1, SIZE)
    partner, angle = level_tables(coordinates, bins, grouped, order)
    return HalfPlan(warps, coordinates, partner, angle, _inner(coordinates, warps, wiring.n), slot)


def rows(n: int) -> int:
    """Rows of shared memory for vectors of length n."""
    return _whole(n) + SPARE


def _whole(n: int) -> int:
    return -(-n // 32) * 32


def octets(n: int) -> np.ndarray:  # shape: (n / 8, 8), n a multiple of 32
    """Coordinates whose rows are accessed together when vectors come in and go out (`gluon.half_rounds`)."""
    first = np.arange(0, n, 32)[:, None, None] + 2 * np.arange(4)[None, :, None]
    j = np.arange(8)[None, None, :]
    return (first + 8 * (j // 2) + j % 2).reshape(-1, 8)


def spread_rows(groups: np.ndarray, n: int) -> np.ndarray:  # shape: (n rounded up to a multiple of 32,)
    """Rows for the coordinates: eight rows that are accessed together should have eight banks.

    Each octet has eight neighbouring rows. Within them, coordinates change places as long as that spreads the members
    of groups (Q, 16; −1: none): a group is accessed in two halves, so it should have each bank twice.
    """
    of = octets(_whole(n))
    place = np.empty(of.size, np.int64)
    place[of] = np.arange(len(of))[:, None]
    c = np.arange(of.size)
    # A start that is right for butterflies: banks differ where bits 0–2, 4–6 or 8–10 of coordinates do, and in octets.
    bank = (c ^ (c >> 8) ^ ((c >> 2) & 2) ^ ((c >> 2) & 4) ^ ((c >> 5) & 3)) & 7
    q, at = np.nonzero(groups >= 0)
    member = groups[q, at]
    own = q[np.argsort(member, kind="stable")]
    ends = np.cumsum(np.bincount(member, minlength=of.size))
    swap(of, bank, own, ends, np.zeros((len(groups), BANKS), np.int64), PASSES)
    return 8 * place + bank


def places(slot: np.ndarray, lanes: int) -> np.ndarray:
    """Where rows begin, in bytes, with their first piece of eight numbers."""
    piece = slot >> {7: 0, 3: 1, 1: 2, 0: 0}[TURNED[lanes]] & TURNED[lanes]
    return (slot * (2 * lanes) + 16 * piece).astype(np.int32)


def group_places(plan: HalfPlan, n: int, lanes: int) -> np.ndarray:  # shape: (steps · warps, 16), int32
    """Those of the rows of each group; spare rows for no coordinate."""
    spare = rows(n) - SPARE + np.arange(SIZE) % 8
    return places(np.where(plan.coordinates < 0, spare[None], plan.slot[plan.coordinates]), lanes)


def entries(plan: HalfPlan, n: int, lanes: int, columns: int) -> np.ndarray:  # shape: (pieces, 32), int32
    """Those that the lanes of a warp give for 32 coordinates; spare rows up to a multiple of so many columns."""
    of = octets(_whole(n)).reshape(-1, 32)
    count = -(-n // columns) * columns // 32
    slot = np.full((max(count, len(of)), 32), rows(n) - SPARE + np.arange(32) % 8)
    slot[: len(of)] = plan.slot[of]
    return places(slot, lanes)


def barriers(coordinates: np.ndarray) -> np.ndarray:  # shape: (steps,), int32
    """Whether a step has to be followed by a barrier: a later one before the next barrier shares a coordinate with it.

    Args:
        coordinates: of the steps, in the order in which they are done, shape (steps, any); −1: none.
    """
    flags, touched = np.zeros(len(coordinates), np.int32), set[int]()
    for s, step in enumerate(coordinates):
        named = set(step[step >= 0].tolist())
        if not named.isdisjoint(touched):
            flags[s - 1] = 1
            touched = set()
        touched |= named
    flags[-1:] = 1
    return flags


def last_of(plan: HalfPlan) -> np.ndarray:  # shape: (steps · warps, 16), int32
    """Where coordinates get their eigenvalues: in inner steps if there are such, else in their last group; −1: none."""
    found = np.full_like(plan.coordinates, -1)
    if plan.inner < plan.steps:
        found[plan.inner * plan.warps :] = plan.coordinates[plan.inner * plan.warps :]
        return found
    last: dict[int, tuple[int, int]] = {}
    for q, at in zip(*np.nonzero(plan.coordinates >= 0), strict=True):
        last[int(plan.coordinates[q, at])] = (int(q), int(at))
    for c, where in last.items():
        found[where] = c
    return found


def _add_missing(steps: list[list[Bin]], n: int, warps: int) -> None:
    """Groups for the coordinates that have none, in the last steps with room."""
    named = {c for each in steps for found in each for c in found.coordinates}
    missing = [c for c in range(n) if c not in named]
    s = len(steps) - 1
    for first in range(0, len(missing), SIZE):
        while s >= 0 and len(steps[s]) == warps:
            s -= 1
        if s < 0:
            steps.append([])
            s = len(steps) - 1
        found = Bin()
        found.coordinates = missing[first : first + SIZE]
        steps[s].append(found)


def _inner(coordinates: np.ndarray, warps: int, n: int) -> int:
    """From where on the steps have every coordinate just once; the number of steps if there is no such step."""
    steps = coordinates.reshape(-1, warps * SIZE)
    seen = np.zeros(n, np.int64)
    for s in reversed(range(len(steps))):
        np.add.at(seen, steps[s][steps[s] >= 0], 1)
        if seen.max() > 1:
            break
        if seen.min() == 1:
            return s
    return len(steps)


def _in_halves(members: np.ndarray, slot: np.ndarray) -> np.ndarray:  # shape: (16,), −1: none
    """Put coordinates into two halves of eight places, so that in a half their rows have different banks."""
    result, left = np.full(SIZE, -1), list[int]()
    for c in members.tolist():
        bank = int(slot[c]) & 7
        free = [place for place in (bank, bank + 8) if result[place] < 0]
        if free:
            result[free[0]] = c
        else:
            left.append(c)
    result[np.flatnonzero(result < 0)[: len(left)]] = left
    return result
