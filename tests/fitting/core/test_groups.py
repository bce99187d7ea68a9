"""Rounds and groups of a sequence of rotations, against the definition."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Grouped, Pairs
from swallowtail.fitting.core.groups import apart, join, may_meet, meeting, round_starts, together


def random_sequence(n, count, seed):
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(n, 2, replace=False) for _ in range(count)], np.int64).reshape(-1, 2)


def largest_group(n, pairs):
    sequence = Pairs(n, [[pair] for pair in pairs])
    return max([1, *(len(group) for group in Grouped.from_wiring(sequence, n).groups[0])])


@settings(deadline=None, max_examples=40)
@given(
    n=some.integers(2, 12), count=some.integers(1, 30), size=some.integers(2, 8), seed=some.integers(0, 999)
)
def test_rounds_are_as_long_as_their_groups_allow(n, count, size, seed):
    pairs = random_sequence(n, count, seed)
    starts = round_starts(pairs, n, size)
    assert (starts[0], starts[-1]) == (0, count)
    assert (np.diff(starts) > 0).all()
    for start, stop in pairwise(starts.tolist()):
        assert largest_group(n, pairs[start:stop]) <= size
        assert stop == count or largest_group(n, pairs[start : stop + 1]) > size


@settings(deadline=None, max_examples=40)
@given(n=some.integers(2, 12), count=some.integers(1, 30), seed=some.integers(0, 999))
def test_taking_rotations_out_adds_no_round(n, count, seed):
    pairs = random_sequence(n, count, seed)
    kept = np.random.default_rng(seed).random(count) < 0.7
    assert len(round_starts(pairs[kept], n, 4)) <= len(round_starts(pairs, n, 4))


def test_no_rotations_make_no_round():
    assert round_starts(np.zeros((0, 2), np.int64), 5, 4).tolist() == [0]


def test_groups_join_up_to_their_size():
    label, count, _ = apart(6, 3)
    assert join(label, count, 0, 1, 3)
    assert join(label, count, 2, 1, 3)
    assert not may_meet(label, count, 3, 0, 3)
    assert not join(label, count, 3, 0, 3)
    assert may_meet(label, count, 0, 1, 3)
    assert label[0] == label[1] == label[2] != label[3]
    assert sorted(count.tolist()) == [0, 0, 1, 1, 1, 3]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_together_lets_any_two_meet(n):
    label, count, _ = together(n)
    assert all(may_meet(label, count, i, j, n) for i in range(n) for j in range(n))


def test_those_who_meet_through_others_are_one_group():
    label, count = meeting(np.array([[0, 3], [1, 2], [3, 5]]), 6)
    assert label[0] == label[3] == label[5] != label[4]
    assert label[1] == label[2] != label[0]
    assert (count[label[0]], count[label[1]], count[label[4]]) == (3, 2, 1)
