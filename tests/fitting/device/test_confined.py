"""Rounds of groups on a device, beside those of the compiled core."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import grid_kernel, random_symmetric
from swallowtail.fitting.core.confined import grow_round
from swallowtail.fitting.core.groups import apart, meeting, round_starts
from swallowtail.fitting.core.product import MATRIX
from swallowtail.fitting.device import confined, growth, objective
from swallowtail.fitting.device.confined import DeviceConfined
from swallowtail.fitting.device.fit import fit_on_device
from swallowtail.fitting.device.growth import Residual
from swallowtail.fitting.device.walks import conjugated
from swallowtail.fitting.methods.grouped import ConfinedObjective, fit_grouped
from swallowtail.wiring import Grouped

H = random_symmetric(40, 8, 0)


@pytest.mark.parametrize(("threshold", "count", "size"), [(0.1, 90, 8), (0.0, 25, 4), (0.5, 60, 16)])
def test_a_round_is_that_of_the_core(threshold, count, size, monkeypatch):
    monkeypatch.setattr(growth, "TIES", 0.0)
    device = DeviceConfined(torch.from_numpy(H.copy()), count, size, 4)
    A, B = H.copy() / device.scale, Residual.of(device.H.clone())
    groups, own = apart(40, size), apart(40, size)
    pairs, angles = grow_round(A, *groups, count, threshold, MATRIX, 0.0, device._least)
    got, by = device.grow_round(B, count, threshold, own)
    np.testing.assert_array_equal(got, pairs)
    np.testing.assert_allclose(by, angles, atol=1e-10)
    np.testing.assert_allclose(B.rest + torch.diag(B.diagonal), A, atol=1e-10)
    np.testing.assert_allclose(conjugated(device.H, pairs, angles), A, atol=1e-10)
    same = lambda label: label[:, None] == label
    np.testing.assert_array_equal(same(own.label), same(groups.label))
    assert meeting(got, 40)[1].max() <= size


# Where entries are equal, the choices differ: see `growth.favour`.
@pytest.mark.parametrize(("name", "ratio"), [("synthetic", 1.001), ("kernel", 1.15)])
def test_it_is_about_as_good_as_on_the_cpu(name, ratio, monkeypatch):
    monkeypatch.setattr(ConfinedObjective, "starts", DeviceConfined.starts)  # without clusters
    monkeypatch.setattr(objective, "LARGEST_THRESHOLD", 1.0)
    kernel = grid_kernel((12, 12), "exponential", 4.0, scramble=2)
    A = {"synthetic": random_symmetric(64, 20, 3), "kernel": kernel}[name]
    n, K = len(A), 3 * len(A)
    fits = [
        fit_on_device(torch.from_numpy(A), K, grouped=True, cycles=12).found,
        fit_grouped(A, K, cycles=12),
    ]
    values = [fit.history[-1][2] for fit in fits]
    assert values[0] < ratio * values[1]
    for fit in fits:
        assert isinstance(fit.wiring, Grouped)
        assert fit.wiring.size <= 16
        assert fit.wiring.n_rotations <= K
        assert len(round_starts(fit.wiring.pairs, n, 16)) - 1 <= 16
    d = fits[0].eigenvalues
    assert values[0] == pytest.approx(1 - (d @ d) / (A**2).sum(), rel=1e-6)


def test_sizes_and_rounds_are_kept():
    fit = fit_on_device(torch.from_numpy(H), 90, grouped=True, size=6, n_rounds=5, cycles=6).found
    assert fit.wiring.size <= 6
    assert len(fit.wiring.groups) <= 5


def test_a_diagonal_matrix_needs_none():
    fit = fit_on_device(torch.diag(torch.arange(5.0)), 9, grouped=True).found
    assert fit.wiring.n_rotations == 0


def test_layers_of_regrowth_are_not_single_rotations(monkeypatch):
    """On a device a layer takes as long whatever it has."""
    looks = []
    find = confined.largest
    monkeypatch.setattr(confined, "largest", lambda *a: (looks.append(1), find(*a))[1])
    A = torch.from_numpy(random_symmetric(48, 10, 1))
    objective = DeviceConfined(A, 200, 16, 16)
    pairs, angles = objective.grow(objective.residual(np.zeros((0, 2), np.int64), np.zeros(0)), 150, 0.0)
    looks.clear()
    # without a generator they stand before all others
    more, _ = objective.regrow(pairs, angles, 40, 1.0, None)
    assert len(more) - len(pairs) > 20
    assert len(looks) < 20


def test_one_coordinate_needs_none():
    assert fit_on_device(torch.eye(1), 3, grouped=True).found.wiring.n_rotations == 0
    assert fit_on_device(torch.eye(1), 3).found.wiring.n_rotations == 0
