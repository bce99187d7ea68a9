"""Rotations by Newton's promise, on a device, are those of the compiled core."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.fitting.core.groups import joined, meeting, together
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.product import MATRIX
from swallowtail.fitting.device import newton
from swallowtail.fitting.device.newton import newton_layers

H = random_symmetric(40, 8, 0)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("layers", "rows"), [(1, 2048), (3, 2048), (1, 7)])
def test_newton_layers_are_those_of_the_core(layers, rows, grouped, monkeypatch):
    monkeypatch.setattr(newton, "ROWS", rows)
    B, size = random_orthogonal(40, 1), 8
    begun = lambda: joined(np.array([(0, 5), (5, 9), (3, 30), (31, 2)]), 40, size)
    groups = begun() if grouped else together(40)
    pairs, angles = newton_rotations(H.copy(), B, 30, layers, 0.1, MATRIX, 0.0, groups)
    own = begun() if grouped else None
    got, by = newton_layers(torch.from_numpy(H.copy()), torch.from_numpy(B), 30, layers, 0.1, own)
    signs = [np.where(p[:, 0] < p[:, 1], 1.0, -1.0) for p in (pairs, got)]  # (i, j) by θ is (j, i) by −θ
    np.testing.assert_array_equal(np.sort(got, axis=1), np.sort(pairs, axis=1))
    np.testing.assert_allclose(by * signs[1], angles * signs[0], rtol=1e-4)
    if own is not None:
        same = lambda label: label[:, None] == label
        np.testing.assert_array_equal(same(own.label), same(groups.label))
        assert meeting(got, 40)[1].max() <= size
