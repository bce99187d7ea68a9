"""What every wiring promises: disjoint layers, counted, compared and transposed."""

import copy
import pickle

import numpy as np
import pytest
from cases import WIRINGS

from swallowtail import Butterfly, Grouped, Pairs

EVERY = pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS.keys())


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
        assert other.fingerprint == wiring.fingerprint


def test_different_wirings_differ():
    wirings = list(WIRINGS.values())
    for a, first in enumerate(wirings):
        for b, second in enumerate(wirings):
            assert (first == second) == (a == b), (first, second)
            assert (first.fingerprint == second.fingerprint) == (a == b), (first, second)
    assert Butterfly(2, reverse=True) == Butterfly(2)  # one stride: no direction
    assert hash(Butterfly(2, reverse=True)) == hash(Butterfly(2))
    assert Butterfly(4, reverse=True) != Butterfly(4)
    assert Pairs(4, [[(0, 1)], [(2, 3)]]) != Pairs(4, [[(0, 1), (2, 3)]])
    assert Pairs(4, [[(0, 1)]]) != Pairs(4, [[(1, 0)]])  # the angle's sign
    assert Butterfly(4) != "Butterfly(4)"


def test_fingerprints_stay_as_they_are():
    """They lie in checkpoints; a file of yesterday must be recognised tomorrow."""
    assert Butterfly(8, 2).fingerprint == 5252907049698369715
    assert Butterfly(2, reverse=True).fingerprint == Butterfly(2).fingerprint
    assert Pairs(4, [[(0, 1)], [(2, 3)]]).fingerprint == 3006548431924882338


@pytest.mark.parametrize(
    ("wiring", "text"),
    [
        (Butterfly(8), "Butterfly(n=8, depth=1): 3 layers, 12 rotations"),
        (Butterfly(5, 2, reverse=True), "Butterfly(n=5, depth=2, reverse=True): 6 layers, 10 rotations"),
        (Pairs(4, [[(0, 1)], []]), "Pairs(n=4): 2 layers, 1 rotations"),
        (
            Grouped(4, [[((0, 1, 3), [(0, 1), (1, 3)])], []]),
            "Grouped(n=4): 2 rounds of groups up to 3, 2 layers, 2 rotations",
        ),
    ],
)
def test_repr_says_what_it_is(wiring, text):
    assert repr(wiring) == text
