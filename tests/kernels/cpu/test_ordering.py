"""Rotations in an order for registers: the same product, fewer rows to load."""

import numpy as np
import pytest
from cases import WIRINGS

from swallowtail import Pairs
from swallowtail.kernels.cpu.ordering import in_registers


def loads(pairs, size):
    """Rows loaded where the row that was used longest ago makes room."""
    held, count = [], 0
    for pair in pairs.tolist():
        for row in pair:
            count += row not in held
            held = [*(r for r in held if r != row), row][-size:]
    return count


@pytest.mark.parametrize("size", [2, 3, 30])
@pytest.mark.parametrize(
    "name", ["pairs-3", "pairs-5-no-layers", "pairs-17", "pairs-100", "grouped-64", "hub"]
)
def test_the_product_stays_what_it_is(name, size):
    wiring = Pairs(40, [[(0, k)] for k in range(1, 40)]) if name == "hub" else WIRINGS[name]
    order = in_registers(wiring.pairs, wiring.n, size)
    assert sorted(order) == list(range(wiring.n_rotations))
    place = np.argsort(order)
    for c in range(wiring.n):
        own = np.flatnonzero((wiring.pairs == c).any(1))
        assert (np.diff(place[own]) > 0).all(), f"rotations of coordinate {c} changed places"


def test_fewer_rows_are_loaded():
    wiring = WIRINGS["pairs-784"]
    order = in_registers(wiring.pairs, wiring.n, 30)
    assert loads(wiring.pairs[order], 30) < 0.7 * loads(wiring.pairs, 30)
