"""Wirings: who meets whom, counted and transposed, for any n."""

import copy
import pickle

import numpy as np
import pytest
from cases import WIRINGS, random_pairs
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Pairs

EVERY = pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS.keys())


def test_butterfly_of_8_is_the_papers():
    """Pairs (2pk + j, p(2k + 1) + j) with p = n/2^i: the paper's numbering, less one."""
    paper = [
        [(1, 5), (2, 6), (3, 7), (4, 8)],
        [(1, 3), (2, 4), (5, 7), (6, 8)],
        [(1, 2), (3, 4), (5, 6), (7, 8)],
    ]
    layers = [(layer + 1).tolist() for layer in Butterfly(8).layers()]
    assert layers == [[list(pair) for pair in layer] for layer in paper]


@pytest.mark.parametrize(
    ("n", "layers"),
    [
        (1, []),
        (2, [[(0, 1)]]),
        (3, [[(0, 2)], [(0, 1)]]),
        (5, [[(0, 4)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]),
        (6, [[(0, 4), (1, 5)], [(0, 2), (1, 3)], [(0, 1), (2, 3), (4, 5)]]),
    ],
)
def test_butterfly_drops_pairs_beyond_n(n, layers):
    assert [[tuple(pair) for pair in layer.tolist()] for layer in Butterfly(n).layers()] == layers


@pytest.mark.parametrize(("n", "count"), [(2, 1), (8, 12), (64, 192), (1024, 5120), (4096, 24576)])
def test_powers_of_two_have_half_n_lg_n_rotations(n, count):
    assert Butterfly(n).n_rotations == count
    assert Butterfly(n, 3).n_rotations == 3 * count


def test_depth_repeats_and_reverse_reverses():
    once = [layer.tolist() for layer in Butterfly(11).layers()]
    assert [layer.tolist() for layer in Butterfly(11, 3).layers()] == once * 3
    assert [layer.tolist() for layer in Butterfly(11, 3, reverse=True).layers()] == (once * 3)[::-1]


@EVERY
def test_layers_are_disjoint_and_counted(wiring):
    assert len(wiring.offsets) == wiring.n_layers + 1
    assert wiring.offsets[0] == 0
    assert wiring.offsets[-1] == wiring.n_rotations
    for index, layer in enumerate(wiring.layers()):
        assert layer.dtype == np.int64
        assert layer.shape == (wiring.offsets[index + 1] - wiring.offsets[index], 2)
        assert len(np.unique(layer)) == layer.size
        assert layer.size == 0 or (layer.min() >= 0 and layer.max() < wiring.n)


@EVERY
def test_transposing_reverses_the_layers(wiring):
    there = [layer.tolist() for layer in wiring.layers()]
    assert [layer.tolist() for layer in wiring.T.layers()] == there[::-1]
    assert wiring == wiring.T.T
    flat = np.concatenate([np.zeros((0, 2), int), *wiring.layers()])
    back = np.concatenate([np.zeros((0, 2), int), *wiring.T.layers()])
    assert np.array_equal(flat[wiring.transpose_order], back)


@EVERY
def test_copies_are_equal(wiring):
    for other in (copy.deepcopy(wiring), pickle.loads(pickle.dumps(wiring))):
        assert other == wiring
        assert hash(other) == hash(wiring)


def test_different_wirings_differ():
    wirings = list(WIRINGS.values())
    for a, first in enumerate(wirings):
        for b, second in enumerate(wirings):
            assert (first == second) == (a == b), (first, second)
    assert Butterfly(2, reverse=True) == Butterfly(2)  # one stride: no direction
    assert hash(Butterfly(2, reverse=True)) == hash(Butterfly(2))
    assert Butterfly(4, reverse=True) != Butterfly(4)
    assert Pairs(4, [[(0, 1)], [(2, 3)]]) != Pairs(4, [[(0, 1), (2, 3)]])
    assert Pairs(4, [[(0, 1)]]) != Pairs(4, [[(1, 0)]])  # the angle's sign
    assert Butterfly(4) != "Butterfly(4)"


@pytest.mark.parametrize(
    ("wiring", "text"),
    [
        (Butterfly(8), "Butterfly(n=8, depth=1): 3 layers, 12 rotations"),
        (Butterfly(5, 2, reverse=True), "Butterfly(n=5, depth=2, reverse=True): 6 layers, 10 rotations"),
        (Pairs(4, [[(0, 1)], []]), "Pairs(n=4): 2 layers, 1 rotations"),
    ],
)
def test_repr_says_what_it_is(wiring, text):
    assert repr(wiring) == text


def test_pairs_takes_lists_tuples_and_arrays():
    layers = [[(0, 2), (3, 1)], [], [(1, 2)]]
    expected = Pairs(4, layers)
    assert Pairs(4, tuple(map(tuple, layers))) == expected
    assert Pairs(np.int64(4), [np.array(layer, np.int32).reshape(-1, 2) for layer in layers]) == expected
    assert Pairs(4, iter(layers)) == expected
    assert expected.n_layers == 3


def test_a_wiring_does_not_change_with_the_array_it_came_from():
    array = np.array([[0, 1], [2, 3]])
    wiring = Pairs(4, [array])
    array[:] = 0
    assert wiring.layer(0).tolist() == [[0, 1], [2, 3]]


def test_sequence_is_packed_into_few_layers():
    wiring, order = Pairs.from_sequence(5, [(0, 1), (2, 3), (1, 2), (4, 0), (3, 4)])
    assert [layer.tolist() for layer in wiring.layers()] == [[[0, 1], [2, 3]], [[1, 2], [4, 0]], [[3, 4]]]
    assert order.tolist() == [0, 1, 2, 3, 4]
    empty, order = Pairs.from_sequence(3, [])
    assert (empty.n_layers, order.tolist()) == (0, [])


@settings(deadline=None, max_examples=50)
@given(n=some.integers(2, 12), count=some.integers(0, 30), seed=some.integers(0, 2**32 - 1))
def test_a_packed_sequence_keeps_its_product(n, count, seed):
    """Rotations that share a coordinate stay in order, so the product is the same."""
    rng = np.random.default_rng(seed)
    sequence = np.array([rng.choice(n, 2, replace=False) for _ in range(count)]).reshape(-1, 2)
    wiring, order = Pairs.from_sequence(n, sequence)
    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(wiring.pairs, sequence[order])
    place = np.argsort(order)
    for a in range(count):
        for b in range(a + 1, count):
            if set(sequence[a]) & set(sequence[b]):
                assert place[a] < place[b]


@settings(deadline=None, max_examples=50)
@given(n=some.integers(1, 5000), depth=some.integers(1, 3))
def test_butterfly_counts_without_making_its_pairs(n, depth):
    wiring = Butterfly(n, depth)
    assert np.diff(wiring.offsets).tolist() == [len(layer) for layer in wiring.layers()]
    assert wiring.n_layers == depth * (n - 1).bit_length()


def test_largest_size_is_described_at_once():
    assert Butterfly(2**24).n_rotations == 2**23 * 24


def test_random_pairs_have_the_layers_asked_for():
    assert np.diff(random_pairs(9, 4, empty=(1,)).offsets).tolist()[1] == 0
