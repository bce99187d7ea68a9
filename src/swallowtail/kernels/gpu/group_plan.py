"""Wirings whose rotations stay inside short ranges of neighbouring coordinates: Q is block-diagonal.

Fixed groups of 128 coordinates are the usual case, however many rounds they have: all rounds together are one
orthogonal matrix per group. No declaration is needed, the pairs show it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.wiring import Wiring

MIN_SIZE = 16  # of a matrix that tensor cores multiply
TRITON_SIZE = 128  # up to here, `triton.block_diagonal` is as fast as memory in half precision
# PyTorch's own products of larger blocks are faster than other kernels, by bytes per number.
MAX_SIZE = {2: 512, 4: TRITON_SIZE}
# Smaller blocks are put together up to this size, by bytes per number: longer pieces of a vector are read at once.
USUAL_SIZE = {2: 128, 4: 64}


class GroupPlan(NamedTuple):
    """Blocks of at most ``size`` neighbouring coordinates, and the rotations in each, level by level.

    A level is a set of disjoint pairs of one block. All blocks have the same number of levels.
    """

    size: int  # a power of two
    unit: int  # 8, 4, 2 or 1; divides all starts, the end included: so many numbers are read at once
    even: bool  # all blocks are full
    rest: int  # length of the last block where all others are full; 0 if it is full too, −1 if others are not
    # Block q has the coordinates from starts[q] up to starts[q + 1]. Shape: (Q + 1,), int32.
    starts: np.ndarray
    partner: np.ndarray  # shape: (L, Q, size), int32: whom a coordinate meets, counted from the block's start
    # Shape (L, Q, size), int32: the angle, counted from 1, with a minus at the first coordinate of its pair; 0: none.
    angle: np.ndarray

    @property
    def n_blocks(self) -> int:
        """How many blocks there are, Q."""
        return len(self.starts) - 1


@lru_cache(maxsize=64)
def group_plan(wiring: Wiring, dtype: torch.dtype) -> GroupPlan | None:
    """The plan for vectors of a dtype; None where a block would be too long.

    Blocks that PyTorch multiplies are full, or there is only one.
    """
    if not wiring.n_rotations or dtype.itemsize not in USUAL_SIZE:
        return None
    pairs = np.concatenate(list(wiring.layers()))
    cuts = _cuts(wiring.n, pairs)
    longest = int(np.diff(cuts).max())
    if longest > MAX_SIZE[dtype.itemsize]:
        return None
    wanted = max(longest, min(USUAL_SIZE[dtype.itemsize], wiring.n))
    size = max(MIN_SIZE, 1 << (wanted - 1).bit_length())
    starts = _starts(cuts, size)
    unit = int(np.gcd.reduce([8, *starts.tolist()]))
    lengths = np.diff(starts)
    even = bool((lengths == size).all())
    rest = int(lengths[-1] % size) if (lengths[:-1] == size).all() else -1
    if size > TRITON_SIZE and not even and len(starts) > 2:
        return None
    return GroupPlan(size, unit, even, rest, starts, *_levels(starts, size, pairs))


def _cuts(n: int, pairs: np.ndarray) -> np.ndarray:
    """Places from 0 to n, both included, that no pair reaches across."""
    first, last = pairs.min(1), pairs.max(1)
    # One up where a pair begins to reach across, one down where it ends.
    reach = np.bincount(first + 1, minlength=n + 2) - np.bincount(last + 1, minlength=n + 2)
    return np.flatnonzero(np.cumsum(reach)[: n + 1] == 0)


def _starts(cuts: np.ndarray, size: int) -> np.ndarray:
    """The cuts that remain when blocks are as long as ``size`` allows."""
    starts = [0]
    while starts[-1] < cuts[-1]:
        starts.append(int(cuts[np.searchsorted(cuts, starts[-1] + size, side="right") - 1]))
    return np.array(starts, np.int32)


def _levels(starts: np.ndarray, size: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Partners and angles, each rotation on the earliest level that its order allows."""
    reached = np.zeros(starts[-1], np.int64)
    level = np.empty(len(pairs), np.int64)
    for k, (i, j) in enumerate(pairs.tolist()):
        level[k] = max(reached[i], reached[j])
        reached[i] = reached[j] = level[k] + 1
    shape = (int(level.max()) + 1, len(starts) - 1, size)
    partner = np.broadcast_to(np.arange(size, dtype=np.int32), shape).copy()
    angle = np.zeros(shape, np.int32)
    block = np.searchsorted(starts, pairs[:, 0], side="right") - 1
    i, j = (pairs - starts[block, None]).T
    number = np.arange(1, len(pairs) + 1)
    partner[level, block, i], partner[level, block, j] = j, i
    angle[level, block, i], angle[level, block, j] = -number, number
    return partner, angle
