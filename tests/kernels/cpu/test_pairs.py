"""Data-chosen pairs: tiles that are partly filled, and the order rotations are joined in."""

import numpy as np
import pytest
import torch
from cases import WIRINGS, normal, random_angles
from cpu_checks import check_all

from swallowtail import Pairs
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import launch, promotion
from swallowtail.kernels.cpu import pairs as cpu_pairs


@pytest.mark.parametrize("m", [15, 16, 17, 31, 32, 65, 600])
@pytest.mark.parametrize("name", ["butterfly-17", "butterfly-64", "pairs-17", "pairs-64", "pairs-3"])
def test_rows_round_the_width_of_a_tile(name, m, monkeypatch):
    monkeypatch.setattr(launch, "WORTH_TILES", 0)
    check_all(WIRINGS[name], torch.float32, 1, m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles_wait_for_vectors_and_change_no_bit(dtype, monkeypatch):
    promotion._history.cache_clear()  # or the wiring may have earned machine code in other tests
    wiring, tiles = WIRINGS["pairs-64"], []
    made = launch._in_tiles
    monkeypatch.setattr(launch, "_in_tiles", lambda *a: (tiles.append(a[1]), made(*a))[1])
    x = normal(1, launch.WORTH_TILES // 2, wiring.n, dtype=dtype)
    angles, D = random_angles(wiring, 1, dtype=dtype), normal(1, wiring.n, dtype=dtype, seed=1)
    for call in (
        lambda prepared: cpu.rotate(wiring, angles, x, prepared=prepared),
        lambda prepared: cpu.rotate(wiring, angles, x, transpose=True, prepared=prepared),
        lambda prepared: cpu.symmetric(wiring, angles, D, x, prepared=prepared),
    ):
        prepared = cpu.prepare(wiring, angles, D)
        before, begun = call(prepared), len(tiles)
        assert torch.equal(call(prepared), before)
        assert len(tiles) == begun + 1


@pytest.mark.parametrize("name", ["pairs-100", "hub", "one layer", "chain", "none"])
def test_rotations_are_joined_in_an_order_of_the_same_product(name):
    wiring = {
        "hub": lambda: Pairs(40, [[(0, k), (20 + k, 39 - k % 3)] for k in range(1, 17)]),
        "one layer": lambda: Pairs(8, [[(0, 1), (2, 3), (4, 5), (6, 7)]]),
        "chain": lambda: Pairs(9, [[(k, k + 1)] for k in range(8)]),
        "none": lambda: Pairs(4, []),
    }.get(name, lambda: WIRINGS[name])()
    order, joined, swapped = cpu_pairs.join(wiring.pairs, wiring.n)
    assert sorted(order) == list(range(wiring.n_rotations))
    place = np.argsort(order)
    for c in range(wiring.n):
        own = np.flatnonzero((wiring.pairs == c).any(1))
        assert (np.diff(place[own]) > 0).all(), f"rotations of coordinate {c} changed places"
    pairs = np.where(swapped[:, None], wiring.pairs[order][:, ::-1], wiring.pairs[order])
    (first,) = np.nonzero(joined)
    assert not joined[first + 1].any()  # nothing belongs to two
    assert (pairs[first, 0] == pairs[first + 1, 0]).all()
    assert len(first) == {"one layer": 0, "none": 0, "chain": 4}.get(name, len(first))
    if name in ("hub", "pairs-100"):
        assert len(first) > wiring.n_rotations // 4
