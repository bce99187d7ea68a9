"""Curves of the rivals, against the rivals made as matrices."""

import numpy as np
import pytest

from swallowtail.datasets import random_symmetric
from swallowtail.explorer.curves import rival_curves
from swallowtail.metrics import error_angle

H = random_symmetric(16, 3, 5)
VALUES, VECTORS = np.linalg.eigh(H)


def curve(name):
    return next(c["points"] for c in rival_curves(H, VALUES, VECTORS) if c["name"] == name)


def test_low_rank_is_the_best_of_its_rank():
    point = curve("c·I + low rank")[2]
    assert point["floats"] == 2 * 17 + 1
    assert point["multiply_adds"] == 5 * 16
    order = np.argsort(-np.abs(VALUES - np.median(VALUES)))
    rest = order[2:]
    kept = VALUES.copy()
    kept[rest] = VALUES[rest].mean()
    expected = error_angle(H, (VECTORS * kept) @ VECTORS.T)
    assert point["angle"] == pytest.approx(expected, rel=0.05)  # other probes


def test_more_is_never_worse_and_every_point_has_its_costs():
    for name in ("c·I + low rank", "diagonal + low rank", "largest entries"):
        points = curve(name)
        assert [p["floats"] for p in points] == sorted(p["floats"] for p in points)
        assert points[-1]["angle"] < points[0]["angle"]
        assert all(p[unit] > 0 for p in points for unit in ("floats", "bytes", "multiply_adds", "time"))
    assert curve("diagonal + low rank")[0]["angle"] == pytest.approx(
        error_angle(H, np.diag(np.diag(H))), rel=0.05
    )


def test_entries_are_counted_once_and_their_images_multiplied():
    first = curve("largest entries")[0]
    kept = np.sort(np.abs(H[np.triu_indices(16)]))[-16]
    entries = np.where(np.abs(H) >= kept, H, 0)
    assert first["floats"] == 16
    assert first["multiply_adds"] == np.count_nonzero(entries)
    assert first["angle"] == pytest.approx(error_angle(H, entries), rel=0.05)
