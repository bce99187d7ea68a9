"""Wirings written in rounds of groups that do many rotations per coordinate: the same rotation, fewer loads."""

import numpy as np
import pytest
import torch
from cases import WIRINGS, dense_rotation, random_pairs
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Grouped, Pairs
from swallowtail.errors import ArgumentError
from swallowtail.kernels.cpu.schedule import schedule


def loads(wiring: Grouped) -> int:
    return sum(len(coordinates) for groups in wiring.groups for coordinates in groups)


def queues(n: int, pairs: np.ndarray) -> list[list[tuple[int, int]]]:
    """For every coordinate its rotations in order: what two sequences must have in common to be one product."""
    own: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for i, j in pairs.tolist():
        own[i].append((i, j))
        own[j].append((i, j))
    return own


@pytest.mark.parametrize("size", [2, 5, 16])
@pytest.mark.parametrize("name", [name for name, wiring in WIRINGS.items() if wiring.n <= 256])
def test_every_wiring_keeps_its_product(name, size):
    wiring = WIRINGS[name]
    listed = np.concatenate([np.zeros((0, 2), np.int64), *wiring.layers()])
    grouped, order = schedule(wiring, size)
    assert sorted(order.tolist()) == list(range(wiring.n_rotations))
    assert np.array_equal(grouped.pairs, listed[order])
    numbered = [[] for _ in range(wiring.n)]  # by their places in the given wiring
    for k in order.tolist():
        for c in listed[k]:
            numbered[c].append(k)
    assert all(own == sorted(own) for own in numbered)
    assert queues(wiring.n, grouped.pairs) == queues(wiring.n, listed)
    assert grouped.size <= size
    # Valid groups, levelled round by round.
    assert Grouped.from_layers(grouped, grouped.groups, grouped.round_layers) == grouped
    again, _ = Grouped.from_listing(wiring.n, grouped.rounds)
    assert np.array_equal(again.round_layers, grouped.round_layers)


@settings(deadline=None, max_examples=30)
@given(
    n=some.integers(2, 12), layers=some.integers(0, 12), size=some.integers(2, 9), seed=some.integers(0, 99)
)
def test_the_matrix_is_the_same(n, layers, size, seed):
    wiring = random_pairs(n, layers, seed)
    angles = torch.from_numpy(np.random.default_rng(seed).uniform(-3, 3, wiring.n_rotations))
    grouped, order = schedule(wiring, size)
    assert torch.allclose(dense_rotation(grouped, angles[order]), dense_rotation(wiring, angles), atol=1e-13)


@pytest.mark.parametrize(("n", "size", "rounds"), [(64, 8, 2), (1024, 16, 3), (1024, 32, 2)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_butterfly_is_cut_by_strides(n, size, rounds, reverse):
    grouped, _ = schedule(Butterfly(n, reverse=reverse), size)
    assert (grouped.n_rounds, grouped.n_layers, loads(grouped)) == (rounds, n.bit_length() - 1, rounds * n)


def test_a_group_takes_in_whom_a_partner_must_meet_first():
    wiring = Pairs(4, [[(0, 1), (2, 3)], [(1, 2)], [(0, 1), (2, 3)]])
    grouped, _ = schedule(wiring, 4)
    assert (grouped.n_rounds, loads(grouped)) == (1, 4)


def test_groups_load_few_coordinates_per_rotation():
    wiring = random_pairs(200, 20, seed=11)
    for size, most in ((2, 2.0), (16, 1.15), (32, 1.05)):
        assert loads(schedule(wiring, size)[0]) <= most * wiring.n_rotations


def test_a_group_stands_in_the_earliest_round():
    grouped, _ = schedule(random_pairs(60, 9, seed=12), 8)
    done = np.zeros(60, np.int64)
    for r, groups in enumerate(grouped.groups):
        for coordinates in groups:
            assert done[coordinates].max() == r
            done[coordinates] = r + 1


def test_the_same_wiring_gives_the_same_schedule():
    wiring = random_pairs(80, 12, seed=13)
    first, second = schedule(wiring, 16), schedule(wiring, 16)
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1])


def test_a_group_of_one_is_refused():
    with pytest.raises(ArgumentError, match="size: expected an integer ≥ 2, got 1"):
        schedule(Butterfly(8), 1)
