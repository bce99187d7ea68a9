"""Growth on a device chooses what the compiled core chooses."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import grid_kernel, random_symmetric
from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.matching import grow_matching as grow_matching_of_the_core
from swallowtail.fitting.core.product import MATRIX
from swallowtail.fitting.device import growth
from swallowtail.fitting.device.growth import Residual, grow_layers, grow_matching
from swallowtail.fitting.device.walks import conjugated

H = random_symmetric(40, 8, 0)


@pytest.mark.parametrize(("threshold", "count", "enough"), [(0.1, 90, 0), (0.1, 90, 20), (1.0, 25, 0)])
def test_layers_are_those_of_the_core(threshold, count, enough, monkeypatch):
    monkeypatch.setattr(growth, "TIES", 0.0)
    A, B = H.copy(), Residual.of(torch.from_numpy(H.copy()))
    pairs, angles = parallel_jacobi(A, count, threshold, MATRIX, 0.0, 0.0, enough)
    got, by = grow_layers(B, count, threshold, 0.0, enough)
    np.testing.assert_array_equal(got, pairs)
    np.testing.assert_allclose(by, angles, atol=1e-10)
    np.testing.assert_allclose(B.rest + torch.diag(B.diagonal), A, atol=1e-10)
    np.testing.assert_allclose(conjugated(torch.from_numpy(H), pairs, angles), A, atol=1e-10)


def test_equal_entries_are_shared_out():
    """On a grid every row has four largest entries: choosing them mutually leaves less, in fewer layers."""
    kernel, left = torch.from_numpy(grid_kernel((12, 12), "exponential", 4.0, scramble=1)), []
    for ties in (0.0, growth.TIES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(growth, "TIES", ties)
            A = Residual.of(kernel.clone())
            grow_layers(A, 400, 0.1, 0.0)
        left.append(float(A.rest.square().sum()))
    assert left[1] < 0.97 * left[0]
    i = torch.arange(50, dtype=torch.int32)
    pairs = growth.favour(i[:, None], i)
    np.testing.assert_array_equal(pairs, pairs.T)
    assert pairs.unique().numel() > 600


@pytest.mark.parametrize("rows", [2048, 7])
def test_matchings_are_those_of_the_core(rows, monkeypatch):
    monkeypatch.setattr(growth, "ROWS", rows)
    A, B = H.copy(), Residual.of(torch.from_numpy(H.copy()))
    for most in (10**6, 11):
        pairs, angles = grow_matching_of_the_core(A, most, MATRIX, 0.0, 0.0)
        got, by = grow_matching(B, most, 0.0)
        order, ours = np.argsort(pairs[:, 0]), np.argsort(got[:, 0])
        np.testing.assert_array_equal(got[ours], pairs[order])
        np.testing.assert_allclose(by[ours], angles[order], atol=1e-10)
        np.testing.assert_allclose(B.rest + torch.diag(B.diagonal), A, atol=1e-10)
    assert len(grow_matching(Residual.of(torch.eye(5)), 9, 0.0)[1]) == 0


def test_a_diagonal_matrix_needs_none():
    pairs, angles = grow_layers(Residual.of(torch.diag(torch.arange(5.0))), 9, 0.1, 0.0)
    assert pairs.shape == (0, 2)
    assert angles.shape == (0,)
