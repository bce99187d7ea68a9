"""Grouped rounds: levelled, compared, made from other wirings, and refused where they are no groups."""

import numpy as np
import pytest
import torch
from cases import WIRINGS, dense_rotation, random_angles, random_grouped
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Grouped, Pairs, Rotation
from swallowtail.errors import ArgumentError

GROUPED = [name for name, wiring in WIRINGS.items() if isinstance(wiring, Grouped)]


def test_each_round_is_levelled_on_its_own():
    wiring = Grouped(
        6,
        [
            [([0, 1, 2], [(0, 1), (1, 2)]), ([5, 3], [(3, 5)])],
            [([4, 0], [(4, 0)])],  # could join the layer before, but is of another round
        ],
    )
    assert [layer.tolist() for layer in wiring.layers()] == [[[0, 1], [3, 5]], [[1, 2]], [[4, 0]]]
    assert wiring.round_layers.tolist() == [0, 2, 3]
    assert (wiring.n_rounds, wiring.size) == (2, 3)


def test_groups_may_be_ranges_arrays_and_iterators():
    expected = Grouped(4, [[([0, 1], [(0, 1)]), ([2, 3], [(3, 2)])]])
    assert (
        Grouped(np.int64(4), iter([((range(2), np.array([[0, 1]])), (np.array([2, 3]), ((3, 2),)))]))
        == expected
    )


@pytest.mark.parametrize("name", GROUPED)
def test_rounds_give_the_wiring_back(name):
    wiring = WIRINGS[name]
    again = Grouped(wiring.n, wiring.rounds)
    assert np.array_equal(again.round_layers, wiring.round_layers)
    if name != "grouped-64-butterfly":  # whose layers are listed in another order than its groups
        assert again == wiring
    for groups, kept in zip(wiring.rounds, wiring.groups, strict=True):
        assert [group.coordinates.tolist() for group in groups] == [c.tolist() for c in kept]
        assert all(np.isin(group.pairs, group.coordinates).all() for group in groups)


@settings(deadline=None, max_examples=30)
@given(
    n=some.integers(1, 20), rounds=some.integers(0, 4), size=some.integers(1, 8), seed=some.integers(0, 99)
)
def test_a_listing_keeps_its_product(n, rounds, size, seed):
    """Q is the product of the rotations in the order in which they were listed."""
    given_rounds = random_grouped(n, rounds, size, seed).rounds
    wiring, order = Grouped.from_listing(n, given_rounds)
    listed = np.concatenate([np.zeros((0, 2), np.int64), *(g.pairs for r in given_rounds for g in r)])
    assert np.array_equal(listed[order], wiring.pairs)
    angles = np.random.default_rng(seed).uniform(-3, 3, len(listed))
    one_by_one = Pairs(n, [[pair] for pair in listed])
    expected = dense_rotation(one_by_one, torch.from_numpy(angles))
    actual = dense_rotation(wiring, torch.from_numpy(angles[order]))
    assert torch.allclose(actual, expected, atol=1e-13)


@pytest.mark.parametrize("size", [2, 3, 8, 1000])
@pytest.mark.parametrize("name", [name for name, wiring in WIRINGS.items() if wiring.n < 784])
def test_every_wiring_can_be_written_in_rounds(name, size):
    wiring = WIRINGS[name]
    grouped = Grouped.from_wiring(wiring, size)
    assert grouped.size <= size
    assert [layer.tolist() for layer in grouped.layers()] == [layer.tolist() for layer in wiring.layers()]
    checked = Grouped.from_layers(grouped, grouped.groups, grouped.round_layers)
    assert checked == grouped


def test_a_butterflys_stages_go_together_by_strides():
    grouped = Grouped.from_wiring(Butterfly(32), size=4)
    assert grouped.round_layers.tolist() == [0, 2, 4, 5]
    assert grouped.groups[0][1].tolist() == [1, 9, 17, 25]
    assert grouped.groups[1][1].tolist() == [1, 3, 5, 7]
    assert all(len(groups) == 8 for groups in grouped.groups[:2])


def test_the_transpose_reverses_rounds():
    wiring = WIRINGS["grouped-17"]
    assert [[c.tolist() for c in groups] for groups in wiring.T.groups] == [
        [c.tolist() for c in groups] for groups in wiring.groups[::-1]
    ]
    assert np.array_equal(np.diff(wiring.T.round_layers), np.diff(wiring.round_layers)[::-1])


def test_groups_are_part_of_what_it_is():
    flat = Pairs(4, [[(0, 1)]])
    small, large = Grouped(4, [[([0, 1], [(0, 1)])]]), Grouped(4, [[([0, 1, 2], [(0, 1)])]])
    assert len({flat, small, large}) == 3
    assert small != flat
    assert flat != small
    assert small != large


def test_products_agree_with_the_same_pairs():
    wiring = random_grouped(40, 4, 8, seed=3)
    angles, x = random_angles(wiring), torch.eye(40, dtype=torch.float64)
    flat = Pairs(40, list(wiring.layers()))
    assert torch.equal(Rotation(wiring, angles)(x), Rotation(flat, angles)(x))


WRONG = [
    ([3], "round 0: expected a list of groups"),
    ([[([0, 1], []), ([1, 2], [])]], "round 0: expected disjoint groups, got coordinate 1 in groups 0 and 1"),
    ([[([0, 1], [(0, 2)])]], r"round 0, group 0: expected pairs inside the group, got the pair \(0, 2\)"),
    ([[], [([0, 1], [(1, 1)])]], "round 1, group 0: .* different coordinates, got coordinate 1 with itself"),
    ([[([], [])]], "round 0, group 0: expected at least one coordinate, got none; try leaving the group out"),
    ([[([0, 0], [])]], "round 0, group 0: expected each coordinate once, got coordinate 0 2 times"),
    ([[([0, 4], [])]], "round 0, group 0: expected coordinates in 0 … 3, got 4"),
    ([[([0.0, 1.0], [])]], "round 0, group 0: expected a list of integer coordinates, got shape .* of float64"),
    ([[([0, 1], [(0, 1, 2)])]], "round 0, group 0: expected pairs of integers"),
    ([[(0, 1, 2)]], r"round 0, group 0: expected \(coordinates, pairs\), got \(0, 1, 2\)"),
]  # fmt: skip


@pytest.mark.parametrize(("rounds", "text"), WRONG, ids=[text[:60] for _, text in WRONG])
def test_what_is_no_group_is_refused(rounds, text):
    for build in (Grouped, Grouped.from_listing):
        with pytest.raises(ArgumentError, match=text):
            build(4, rounds)


def test_layers_and_groups_must_fit_together():
    pairs = Pairs(6, [[(0, 1)], [(2, 3)], [(0, 2)]])
    everything = [range(6)]
    assert Grouped.from_layers(pairs, [everything, everything], [0, 2, 3]).n_rounds == 2
    with pytest.raises(ArgumentError, match="round_layers: expected 3 numbers that rise from 0 to 3"):
        Grouped.from_layers(pairs, [everything, everything], [0, 2, 2])
    with pytest.raises(ArgumentError, match="round 1: expected pairs inside the group"):
        Grouped.from_layers(pairs, [everything, [range(2), range(2, 6)]], [0, 2, 3])
    with pytest.raises(ArgumentError, match="size: expected an integer ≥ 2, got 1"):
        Grouped.from_wiring(pairs, 1)


def test_checks_take_memory_for_the_coordinates_named_only():
    """A small file may name any n. With n numbers per round this would take 16 GiB, 50 times."""
    n, rounds = 2**31 - 1, 50
    pairs = Pairs.from_flat(n, np.array([[0, n - 1]] * rounds), np.arange(rounds + 1))
    wiring = Grouped.from_layers(pairs, [[[0, n - 1]]] * rounds, range(rounds + 1))
    assert (wiring.n_rounds, len(wiring.rounds)) == (rounds, rounds)
    with pytest.raises(ArgumentError, match=r"round 0: expected pairs inside the group"):
        Grouped.from_layers(pairs, [[[0, 5]]] * rounds, range(rounds + 1))


@pytest.mark.parametrize("pairs", ["random", "butterfly"])
@pytest.mark.parametrize(
    ("n", "size"), [(256, 128), (13696, 128), (300, 128), (37, 8), (129, 128), (50, 7), (1, 1)]
)
def test_fixed_blocks(n, size, pairs):
    wiring = Grouped.fixed(n, size, layers=3, pairs=pairs)
    assert (wiring.n_rounds, wiring.n_layers) == (1, 3)
    assert [block.tolist() for block in wiring.groups[0]] == [
        list(range(start, min(start + size, n))) for start in range(0, n, size)
    ]
    assert (wiring.pairs // size == wiring.pairs[:, :1] // size).all()
    if pairs == "random":
        assert wiring.n_rotations == 3 * sum(len(block) // 2 for block in wiring.groups[0])
        assert wiring == Grouped.fixed(n, size, layers=3, seed=0)
        assert n < 50 or wiring != Grouped.fixed(n, size, layers=3, seed=1)


def test_fixed_blocks_of_given_pairs_and_of_butterflies():
    given_layers = [[(0, 1), (5, 4)], [(2, 3)]]
    assert [layer.tolist() for layer in Grouped.fixed(6, 4, pairs=given_layers).layers()] == [
        [list(pair) for pair in layer] for layer in given_layers
    ]
    blocks = Grouped.fixed(24, 8, layers=3, pairs="butterfly")
    hadamard = dense_rotation(Butterfly(8), torch.full((12,), np.pi / 4, dtype=torch.float64))
    actual = dense_rotation(blocks, torch.full((36,), np.pi / 4, dtype=torch.float64))
    assert torch.allclose(actual, torch.block_diag(*[hadamard] * 3), atol=1e-14)


def test_blocks_that_cannot_be():
    with pytest.raises(ArgumentError, match="size: expected at most n = 64, got 128; try `size=64`"):
        Grouped.fixed(64, 128)
    with pytest.raises(
        ArgumentError, match=r"round 0: expected pairs inside the group, got the pair \(3, 4\)"
    ):
        Grouped.fixed(8, 4, pairs=[[(3, 4)]])
    with pytest.raises(ArgumentError, match="pairs: expected one of 'random', 'butterfly', got 'hadamard'"):
        Grouped.fixed(8, 4, pairs="hadamard")


def test_groups_have_a_fingerprint_of_their_own():
    wiring = random_grouped(40, 4, 8, seed=3)
    flat, other = Pairs(40, wiring.layers()), Grouped.from_wiring(wiring, 40)
    assert len({wiring.fingerprint, flat.fingerprint, other.fingerprint}) == 3
    assert wiring.fingerprint == random_grouped(40, 4, 8, seed=3).fingerprint
