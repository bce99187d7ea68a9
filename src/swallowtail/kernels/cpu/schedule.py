"""Any wiring as rounds of small groups: only rotations that share no coordinate change places, so Q stays what it is.

A kernel that keeps the coordinates of a group in registers pays for loading them. So a group should do many rotations
per coordinate. Greedily:

1. A group begins with the first rotation that is left. All before it are done, so it can be done now.
2. It does every rotation inside the group whose earlier rotations are done.
3. It takes in more coordinates: those that some member's next rotation needs, its partner and everyone whom that
   partner must meet before. Of all members' offers it takes the one with most rotations per new coordinate, of
   equal ones the one that comes first in Q. It goes on with 2 until the group is full.

On the wirings that fits choose, groups of 16 load 0.9 to 1.1 coordinates per rotation and groups of 32 load 0.6 to 1.0;
a rotation alone loads two. Taking in single coordinates only costs a tenth more. Trying 64 beginnings for every group
saves 2 %, for 15 times the time. A butterfly is cut into rounds of lg ``size`` layers where n allows it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from swallowtail import checks
from swallowtail.kernels.cpu.jit import njit
from swallowtail.wiring import Grouped, Pairs, Wiring

SCANNED = 8  # rotations, times ``size``, that an offer is looked through for before it counts as too large

compiled = njit(cache=True, nogil=True, error_model="numpy")


class Queues(NamedTuple):
    """Who waits for whom: the rotations of every coordinate, in order, and how far each has come."""

    pairs: np.ndarray  # shape: (K, 2)
    own: np.ndarray  # shape: (2K,): the rotations of coordinate 0, of coordinate 1, …
    place: np.ndarray  # shape: (K, 2): where a rotation stands in ``own``, for both of its coordinates
    ends: np.ndarray  # shape: (n,): where the rotations of each coordinate end in ``own``
    # Where in ``own`` the next rotation of each coordinate stands; `ends` if none. Shape: (n,).
    turn: np.ndarray


class Scratch(NamedTuple):
    """Buffers of `_gather` and the functions it calls."""

    inside: np.ndarray  # shape: (n,): whether a coordinate is in the group
    waiting: np.ndarray  # coordinates whose next rotation is to be looked at
    on_list: np.ndarray  # shape: (n,): whether a coordinate is among these
    need: np.ndarray  # shape: (n,): how far in ``own`` an offer must bring a coordinate; −1 outside `_offer`
    scanned: np.ndarray  # shape: (n,): how far in ``own`` it has been looked through
    touched: np.ndarray  # coordinates whose ``need`` is set
    offer: np.ndarray  # shape: (size,): new coordinates
    best: np.ndarray  # shape: (size,): those of the best offer


class Groups(NamedTuple):
    """Groups one after another: their rotations and their coordinates, and where those of each group begin."""

    order: np.ndarray  # shape: (K,): the rotations
    starts: np.ndarray  # shape: (G + 1,)
    members: np.ndarray  # the coordinates
    member_starts: np.ndarray  # shape: (G + 1,)


def schedule(wiring: Wiring, size: int = 16) -> tuple[Grouped, np.ndarray]:
    """Write a wiring in rounds of groups of at most ``size`` coordinates that do many rotations each.

    A group stands in the earliest round in which all earlier groups of its coordinates are done.

    Args:
        wiring: any.
        size: coordinates a group may have, at least 2.

    Returns:
        The wiring, and the order in which to take the given wiring's angles for it: the rotation with ``angles[order]``
        is the given one.

    >>> schedule(Pairs(4, [[(0, 1), (2, 3)], [(1, 2)], [(0, 1)]]), size=2)
    (Grouped(n=4): 3 rounds of groups up to 2, 3 layers, 4 rotations, array([0, 1, 2, 3]))
    """
    size = checks.integer("size", size, at_least=2)
    n, listed = wiring.n, wiring.flat_pairs()
    groups = _gather(_queues(listed, n), min(size, n))
    round_of = _rounds(groups, n)
    order, offsets, round_layers = _layers(listed[groups.order], groups.starts, round_of, n)
    order = groups.order[order]
    parts = np.split(groups.members, groups.member_starts[1:-1])
    by_round = np.argsort(round_of, kind="stable")
    cuts = np.searchsorted(round_of[by_round], np.arange(len(round_layers)))
    coordinates = tuple(tuple(parts[g] for g in by_round[a:b]) for a, b in pairwise(cuts.tolist()))
    return Grouped.from_valid(Pairs.from_flat(n, listed[order], offsets), coordinates, round_layers), order


@compiled
def _queues(pairs: np.ndarray, n: int) -> Queues:
    ends = np.zeros(n, np.int64)
    for k in range(len(pairs)):
        ends[pairs[k, 0]] += 1
        ends[pairs[k, 1]] += 1
    ends = np.cumsum(ends)
    own, place, turn = np.empty(2 * len(pairs), np.int64), np.empty_like(pairs), ends.copy()
    for k in range(len(pairs) - 1, -1, -1):
        for side in range(2):
            c = pairs[k, side]
            turn[c] -= 1
            own[turn[c]] = k
            place[k, side] = turn[c]
    return Queues(pairs, own, place, ends, turn)


@compiled
def _run(queues: Queues, scratch: Scratch, new: np.ndarray, done: np.ndarray, k: int) -> int:
    """Do every rotation inside the group that coordinates ``new`` in it make possible.

    The rotations go to ``done`` from k on; returns where they end.
    """
    count = len(new)
    for a in range(count):
        scratch.waiting[a] = new[a]
        scratch.on_list[new[a]] = True
    while count:
        count -= 1
        c = scratch.waiting[count]
        scratch.on_list[c] = False
        while queues.turn[c] < queues.ends[c]:
            rotation = queues.own[queues.turn[c]]
            p = queues.pairs[rotation, 0] + queues.pairs[rotation, 1] - c
            if not scratch.inside[p] or queues.own[queues.turn[p]] != rotation:
                break
            done[k] = rotation
            k += 1
            queues.turn[c] += 1
            queues.turn[p] += 1
            if not scratch.on_list[p]:
                scratch.waiting[count] = p
                count += 1
                scratch.on_list[p] = True
    return k


@compiled
def _offer(queues: Queues, scratch: Scratch, c: int, room: int) -> int:
    """Find the new coordinates that c's next rotation needs; returns how many, or −1 if more than ``room``."""
    need, scanned, touched = scratch.need, scratch.scanned, scratch.touched
    need[c], scanned[c], touched[0] = queues.turn[c] + 1, queues.turn[c], c
    count, new, work, again = 1, 0, 0, True
    while again and new >= 0:
        again, a = False, 0
        while a < count and new >= 0:
            x = touched[a]
            a += 1
            while scanned[x] < need[x]:
                rotation = queues.own[scanned[x]]
                side = 1 if queues.pairs[rotation, 0] == x else 0
                y, place = queues.pairs[rotation, side], queues.place[rotation, side]
                scanned[x] += 1
                work += 1
                fresh = need[y] < 0
                if work > SCANNED * len(scratch.best) or (fresh and not scratch.inside[y] and new == room):
                    new = -1
                    break
                if fresh:
                    touched[count], scanned[y] = y, queues.turn[y]
                    count += 1
                    if not scratch.inside[y]:
                        scratch.offer[new] = y
                        new += 1
                if place + 1 > need[y]:
                    need[y], again = place + 1, True
    for a in range(count):
        need[touched[a]] = -1
    return new


@compiled
def _best_offer(queues: Queues, scratch: Scratch, members: np.ndarray, room: int, done: np.ndarray) -> int:
    """Put the best offer of the members into ``scratch.best``; returns how many new coordinates it has, 0 if none.

    ``done`` is room for the rotations that an offer would do.
    """
    count, rate, first = 0, 0.0, 0
    for c in members:
        if queues.turn[c] == queues.ends[c]:
            continue
        rotation, new = queues.own[queues.turn[c]], _offer(queues, scratch, c, room)
        if new <= 0:
            continue
        scratch.inside[scratch.offer[:new]] = True
        gained = _run(queues, scratch, scratch.offer[:new], done, 0)
        scratch.inside[scratch.offer[:new]] = False
        for t in range(gained):  # that was a trial
            queues.turn[queues.pairs[done[t], 0]] -= 1
            queues.turn[queues.pairs[done[t], 1]] -= 1
        if gained > rate * new or (gained == rate * new and rotation < first):
            count, rate, first = new, gained / new, rotation
            scratch.best[:new] = scratch.offer[:new]
    return count


@compiled
def _gather(queues: Queues, size: int) -> Groups:
    """All rotations in groups, greedily."""
    K, n = len(queues.pairs), len(queues.ends)
    order, is_done = np.empty(K, np.int64), np.zeros(K, np.bool_)
    starts, member_starts = np.zeros(K + 1, np.int64), np.zeros(K + 1, np.int64)
    members = np.empty(2 * K, np.int64)
    scratch = Scratch(
        np.zeros(n, np.bool_),
        np.empty(size, np.int64),
        np.zeros(n, np.bool_),
        np.full(n, -1),
        np.zeros(n, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    k = count = first = 0
    while k < K:
        while is_done[first]:
            first += 1
        begin = end = member_starts[count]
        scratch.best[:2], new = queues.pairs[first], 2
        while new:
            members[end : end + new] = scratch.best[:new]
            scratch.inside[scratch.best[:new]] = True
            end += new
            k = _run(queues, scratch, scratch.best[:new], order, k)
            new = _best_offer(queues, scratch, members[begin:end], size - (end - begin), order[k:])
        is_done[order[starts[count] : k]] = True
        scratch.inside[members[begin:end]] = False
        count += 1
        starts[count], member_starts[count] = k, end
    return Groups(
        order, starts[: count + 1], members[: member_starts[count]].copy(), member_starts[: count + 1]
    )


@compiled
def _rounds(groups: Groups, n: int) -> np.ndarray:  # shape: (G,)
    """The earliest round of each group in which all earlier groups of its coordinates are done."""
    free, round_of = np.zeros(n, np.int64), np.zeros(len(groups.starts) - 1, np.int64)
    for g in range(len(round_of)):
        mine = groups.members[groups.member_starts[g] : groups.member_starts[g + 1]]
        round_of[g] = free[mine].max()
        free[mine] = round_of[g] + 1
    return round_of


@compiled
def _layers(
    pairs: np.ndarray, starts: np.ndarray, round_of: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Level every round: the order of the rotations by layers, where layers begin, and the first layer of each round.

    ``pairs`` (K, 2) are listed group by group.
    """
    K, R = len(pairs), round_of.max() + 1 if len(round_of) else 0
    level_of, home, height = np.empty(K, np.int64), np.empty(K, np.int64), np.zeros(R + 1, np.int64)
    level = np.zeros(n, np.int64)
    for g in range(len(round_of)):
        for k in range(starts[g], starts[g + 1]):
            level[pairs[k, 0]] = level[pairs[k, 1]] = 0
        for k in range(starts[g], starts[g + 1]):
            i, j = pairs[k, 0], pairs[k, 1]
            level_of[k], home[k] = max(level[i], level[j]), round_of[g]
            level[i] = level[j] = level_of[k] + 1
            height[home[k] + 1] = max(height[home[k] + 1], level_of[k] + 1)
    round_layers = np.cumsum(height)
    offsets = np.zeros(round_layers[-1] + 1, np.int64)
    for k in range(K):
        offsets[round_layers[home[k]] + level_of[k] + 1] += 1
    offsets = np.cumsum(offsets)
    order, filled = np.empty(K, np.int64), offsets.copy()
    for k in range(K):
        layer = round_layers[home[k]] + level_of[k]
        order[filled[layer]] = k
        filled[layer] += 1
    return order, offsets, round_layers
