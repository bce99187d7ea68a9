"""The butterfly: the paper's strides, for any n."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import ArgumentError, Butterfly


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


@settings(deadline=None, max_examples=50)
@given(n=some.integers(1, 5000), depth=some.integers(1, 3))
def test_butterfly_counts_without_making_its_pairs(n, depth):
    wiring = Butterfly(n, depth)
    assert np.diff(wiring.offsets).tolist() == [len(layer) for layer in wiring.layers()]
    assert wiring.n_layers == depth * (n - 1).bit_length()


def test_largest_size_is_described_at_once():
    assert Butterfly(2**24).n_rotations == 2**23 * 24


HUGE = [(10**400, 1), (10**5000, 1), (2, 10**9), (1, 10**9), (8, 10**18)]


@pytest.mark.parametrize(("n", "depth"), HUGE, ids=range(len(HUGE)))
def test_sizes_beyond_memory_are_refused_at_once(n, depth):
    with pytest.raises(
        ArgumentError, match=r"butterfly with n = .*expected at most the .* GiB this machine has"
    ):
        Butterfly(n, depth)
