"""Pairs: any layers, however they are given."""

import pickle

import numpy as np
import pytest
from cases import random_pairs
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Grouped, Pairs


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


def test_random_pairs_have_the_layers_asked_for():
    assert np.diff(random_pairs(9, 4, empty=(1,)).offsets).tolist()[1] == 0


@pytest.mark.parametrize(
    "wiring",
    [
        Pairs(4, [[(0, 3)], [(1, 2)]]),
        Grouped(4, [[([0, 3], [(0, 3)])]]),
        Grouped.fixed(4, 4, 3),
        Grouped.from_wiring(Butterfly(4), 2),
    ],
    ids=repr,
)
def test_nobody_writes_to_what_kernels_follow(wiring):
    grouped = isinstance(wiring, Grouped)
    for array in (
        wiring.pairs,
        wiring.offsets,
        *([wiring.round_layers, wiring.groups[0][0]] if grouped else []),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 10**9
    assert wiring.indices.flags.writeable  # or Numba compiles every function once more
    wiring.layer(0)[:] = 10**9
    assert wiring.pairs.max() == 3
    again = pickle.loads(pickle.dumps(wiring))
    assert again == wiring
    assert again.indices.flags.writeable
