"""Any wiring as steps of groups of 16 coordinates, for `gluon.half_rounds`: what each warp does, and where rows lie."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from swallowtail.kernels.gpu.round_plan import Bin, in_groups, level_tables, packed
from swallowtail.wiring import Wiring

SIZE = 16  # coordinates of a group
SPARE = 8  # rows of shared memory that stand for no coordinate


class HalfPlan(NamedTuple):
    """Groups in steps of disjoint ones, Q₁'s first. Partners and angles are those of `group_plan.GroupPlan`."""

    warps: int  # groups per step
    coordinates: np.ndarray  # shape: (steps · warps, 16), int32; −1: none
    partner: np.ndarray  # shape: (L, steps · warps, 16), int32
    angle: np.ndarray  # shape: (L, steps · warps, 16), int32
    inner: int  # the first of the last steps, if no two of these share a coordinate and they have all; else `steps`

    @property
    def steps(self) -> int:
        return len(self.coordinates) // self.warps


@lru_cache(maxsize=32)
def half_plan(wiring: Wiring, warps: int) -> HalfPlan:
    """The plan of a wiring."""
    grouped, order = in_groups(wiring, SIZE)
    steps = packed(grouped, SIZE, warps)
    coordinates = np.full((len(steps) * warps, SIZE), -1, np.int32)
    bins = list[tuple[int, Bin]]()
    for s, each in enumerate(steps):
        for w, found in enumerate(each):
            coordinates[s * warps + w] = _spread(found.coordinates)
            bins.append((s * warps + w, found))
    partner, angle = level_tables(coordinates, bins, grouped, order)
    return HalfPlan(warps, coordinates, partner, angle, _inner(coordinates, warps, wiring.n))


def rows(n: int) -> int:
    """Rows of shared memory for vectors of length n."""
    return -(-n // 32) * 32 + SPARE


def slots(coordinates: np.ndarray) -> np.ndarray:
    """The row of each coordinate, as in `gluon.half_rounds`.

    The last three bits are linear in the bits of the coordinate, and differ for eight coordinates that differ in bits
    0–2, 4–6 or 8–10 (a butterfly's groups), or in bits 0, 3 and 4 (vectors on their way in and out).
    """
    c = coordinates
    low = c ^ (c >> 8) ^ ((c >> 2) & 2) ^ ((c >> 2) & 4) ^ ((c >> 5) & 3)
    return (c & -8) | (low & 7)


def places(plan: HalfPlan, n: int, lanes: int) -> np.ndarray:  # shape: (steps · warps, 16), int32
    """Where the row at each place of the plan begins, in bytes; a spare row for no coordinate."""
    spare = rows(n) - SPARE + np.arange(SIZE) % 8
    slot = np.where(plan.coordinates < 0, spare[None], slots(plan.coordinates))
    piece = {64: slot & 7, 32: (slot >> 1) & 3, 16: (slot >> 2) & 1}[lanes]
    return (slot * (2 * lanes) + 16 * piece).astype(np.int32)


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


def _spread(coordinates: list[int]) -> np.ndarray:  # shape: (16,), −1: none
    """Put coordinates into two halves of eight places, so that in a half the last bits of their rows differ."""
    result, left = np.full(SIZE, -1), list[int]()
    for c in coordinates:
        residue = int(slots(np.array(c))) & 7
        free = [place for place in (residue, residue + 8) if result[place] < 0]
        if free:
            result[free[0]] = c
        else:
            left.append(c)
    result[np.flatnonzero(result < 0)[: len(left)]] = left
    return result
