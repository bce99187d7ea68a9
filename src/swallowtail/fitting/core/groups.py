"""Rounds of small groups of coordinates, read off a sequence of rotations.

A sequence needs no marks for its rounds. A round goes on for as long as the coordinates that meet in it, directly or
through others, are at most ``size``. A part of a valid round is valid. So cutting as late as possible gives the fewest
rounds, and taking rotations out never adds one.

Compiled functions take the fields of `Groups` one by one, and change the first two where groups join.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import compiled


class Groups(NamedTuple):
    """Disjoint groups of coordinates, which join where a rotation brings them together."""

    label: np.ndarray  # the group of each coordinate, shape: (n,)
    sizes: np.ndarray  # how many each group has, shape: (n,)
    size: int  # the most that one may have


@compiled
def may_meet(label: np.ndarray, count: np.ndarray, i: int, j: int, size: int) -> bool:
    """Whether the groups of i and j are one, or together have at most ``size`` coordinates."""
    return bool(label[i] == label[j] or count[label[i]] + count[label[j]] <= size)


@compiled
def join(label: np.ndarray, count: np.ndarray, i: int, j: int, size: int) -> bool:
    """Unite the groups of i and j if they may meet; says whether they may."""
    if not may_meet(label, count, i, j, size):
        return False
    a, b = label[i], label[j]
    if a != b:
        for k in range(len(label)):
            if label[k] == b:
                label[k] = a
        count[a] += count[b]
        count[b] = 0
    return True


def apart(n: int, size: int) -> Groups:
    """Every coordinate a group of its own."""
    return Groups(np.arange(n), np.ones(n, np.int64), size)


def together(n: int) -> Groups:
    """All coordinates one group: any two may meet."""
    count = np.zeros(n, np.int64)
    count[0] = n
    return Groups(np.zeros(n, np.int64), count, n)


def joined(pairs: np.ndarray, n: int, size: int) -> Groups:
    """The groups that ``pairs`` have made, as groups that may grow."""
    label, sizes = meeting(pairs, n)
    return Groups(label, sizes, size)


@compiled
def meeting(pairs: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The groups of coordinates that meet in ``pairs``, directly or through others."""
    label, count = np.arange(n), np.ones(n, np.int64)
    for k in range(len(pairs)):
        join(label, count, pairs[k, 0], pairs[k, 1], n)
    return label, count


@compiled
def round_starts(pairs: np.ndarray, n: int, size: int) -> np.ndarray:  # shape: (R + 1,)
    """Where each round of the sequence begins, and at the end its length."""
    label, count = np.arange(n), np.ones(n, np.int64)
    starts, rounds = np.zeros(len(pairs) + 1, np.int64), 0
    for k in range(len(pairs)):
        if not join(label, count, pairs[k, 0], pairs[k, 1], size):
            label[:], count[:] = np.arange(n), 1
            rounds += 1
            starts[rounds] = k
            join(label, count, pairs[k, 0], pairs[k, 1], size)
    if len(pairs):
        rounds += 1
    starts[rounds] = len(pairs)
    return starts[: rounds + 1]
