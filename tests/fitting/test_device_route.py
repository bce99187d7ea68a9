"""Matrices that are fitted where they lie, tried on the CPU: the same route, with PyTorch in place of the kernels."""

import numpy as np
import pytest
import torch

import swallowtail as st
from swallowtail.errors import ArgumentError
from swallowtail.fitting import Stop, fit_symmetric, inputs
from swallowtail.wiring import Grouped

H = torch.from_numpy(st.random_symmetric(48, 6, 2)).float()
SHORT = {"method": "pairs", "cycles": 1, "finish": 3}


@pytest.fixture(autouse=True)
def as_if_on_a_gpu(monkeypatch):
    monkeypatch.setattr(inputs, "on_a_gpu", lambda H: True)


def test_the_result_is_like_that_of_a_cpu(monkeypatch):
    result = fit_symmetric(H, method="pairs", cycles=8)
    assert (result.method, result.status, result.n_products) == ("pairs", "converged", 0)
    assert result.operator.dtype == torch.float32
    assert result.angle == pytest.approx(st.error_angle(H, result.operator), abs=0.5)
    dense = result.operator.to_dense().double().numpy()
    assert result.relative_error == pytest.approx(
        np.linalg.norm(dense - H.double().numpy()) / np.linalg.norm(H), rel=1e-3
    )
    assert "On a GPU no rival but" in result.message
    assert "at equal floats (192) against c·I + rank 4" in result.message
    monkeypatch.setattr(inputs, "on_a_gpu", lambda H: False)
    other = fit_symmetric(H, method="pairs", cycles=8)
    assert result.angle < 1.1 * other.angle
    by_name = {rival.name: rival for rival in other.rivals}
    for rival in result.rivals:
        if rival.name in by_name:
            assert rival.angle == pytest.approx(by_name[rival.name].angle, abs=0.3)
            assert rival.relative_error == pytest.approx(by_name[rival.name].relative_error, abs=5e-3)
    assert any(rival.name in by_name for rival in result.rivals)


def test_what_goes_with_it():
    small = H[:16, :16].contiguous()
    assert isinstance(fit_symmetric(small, wiring="grouped", **SHORT).operator.rotation.wiring, Grouped)
    inverse = fit_symmetric(H[:12, :12] + 2 * torch.eye(12), target="inverse", effort="quick")
    assert "On a GPU" not in inverse.message  # goes to the CPU

    def stop(stage, done, objective):
        raise Stop

    stopped = fit_symmetric(H, callback=stop)
    assert stopped.status == "stopped"
    assert stopped.rivals == []
    scaled = fit_symmetric(1e15 * small, **SHORT)
    assert scaled.angle == pytest.approx(fit_symmetric(small, **SHORT).angle, abs=0.05)


def test_matrices_that_it_refuses():
    for bad, message in (
        (H + torch.triu(torch.ones(48, 48), 1), "symmetric matrix.*symmetrize"),
        (torch.where(H > 1e9, H, torch.nan), "finite numbers"),
        (H[:, :40], "square matrix"),
        (H.to(torch.complex64), "H: expected"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fit_symmetric(bad)
    lopsided = (H + 1e-3 * torch.triu(H, 1))[:16, :16]
    assert fit_symmetric(lopsided, symmetrize=True, **SHORT).angle < 60


@pytest.mark.gpu
def test_a_matrix_on_a_gpu_is_fitted_there(monkeypatch):
    monkeypatch.undo()
    kernel = torch.from_numpy(st.datasets.grid_kernel((24, 24), "exponential", 6.0, scramble=1)).float()
    here = fit_symmetric(kernel.cuda(), method="pairs", cycles=1)
    again = fit_symmetric(kernel.cuda(), method="pairs", cycles=1)
    assert here.operator.device.type == "cuda"
    assert "On a GPU" in here.message
    np.testing.assert_array_equal(
        here.operator.rotation.angles.cpu().numpy(), again.operator.rotation.angles.cpu().numpy()
    )
    assert here.angle < 1.05 * fit_symmetric(kernel, method="pairs", cycles=1).angle


def test_rounds_of_groups_are_fitted_there_too():
    result = fit_symmetric(H, method="grouped", n_rounds=6, cycles=2)
    assert result.method == "grouped"
    assert isinstance(result.operator.rotation.wiring, Grouped)
    assert len(result.operator.rotation.wiring.groups) <= 6
    assert "On a GPU" in result.message
    assert result.angle == pytest.approx(st.error_angle(H, result.operator), abs=0.5)
