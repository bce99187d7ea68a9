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


def test_more_is_never_worse_and_the_diagonal_is_a_point():
    for name in ("c·I + low rank", "largest entries"):
        points = curve(name)
        assert [p["floats"] for p in points] == sorted(p["floats"] for p in points)
        assert points[-1]["angle"] < points[0]["angle"]
    (diagonal,) = curve("diagonal")
    assert diagonal["floats"] == 16
    assert diagonal["angle"] == pytest.approx(error_angle(H, np.diag(np.diag(H))), rel=0.05)
