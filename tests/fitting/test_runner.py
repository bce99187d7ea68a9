"""The one runner: which route a request takes, and what every route has in common."""

import numpy as np
import pytest
import torch

from swallowtail import fit_rotation, fit_symmetric, random_orthogonal, random_symmetric
from swallowtail.fitting import Stop, quality

H, R = random_symmetric(16, 3, seed=0), random_orthogonal(16, 0)
X = np.random.default_rng(0).standard_normal((16, 40))
SYMMETRIC = {
    "entries": (H, {}, "pairs", False),
    "all products": (lambda X: H @ X, {"n": 16}, "pairs", False),
    "few products": (lambda X: H @ X, {"n": 16, "max_products": 8}, "products", True),
    "samples": ((X, H @ X), {}, "products", True),
    "sgd": (H, {"method": "sgd", "epochs": 2}, "sgd", False),
    "sgd on samples": ((X, H @ X), {"method": "sgd", "epochs": 2}, "sgd", True),
}
ROTATION = {
    "entries": (R, {}, "pairs", False),
    "all products": (lambda X: R @ X, {"n": 16}, "pairs", False),
    "few products": (lambda X: R @ X, {"n": 16, "max_products": 8}, "sgd", True),
    "samples": ((X, R @ X), {}, "pairs", False),
    "few samples": ((X[:, :4], R @ X[:, :4]), {}, "sgd", True),
    "sgd": (R, {"method": "sgd", "epochs": 2}, "sgd", False),
}
CASES = [(fit_symmetric, *case) for case in SYMMETRIC.values()] + [
    (fit_rotation, *case) for case in ROTATION.values()
]
IDS = [f"symmetric, {name}" for name in SYMMETRIC] + [f"rotation, {name}" for name in ROTATION]


@pytest.mark.parametrize(("fit", "source", "arguments", "method", "estimated"), CASES, ids=IDS)
def test_routes(fit, source, arguments, method, estimated):
    result = fit(source, **arguments)
    assert (result.method, result.estimated) == (method, estimated)
    assert result.target == ("matrix" if fit is fit_symmetric else "rotation")
    assert result.angle_of == ("H" if fit is fit_symmetric else "R")
    low, high = result.angle_estimate[1:]
    assert low <= result.angle <= high


@pytest.mark.parametrize(("fit", "source", "arguments", "method", "estimated"), CASES, ids=IDS)
def test_a_callback_may_stop_every_route(fit, source, arguments, method, estimated):
    calls = []

    def callback(stage, done, objective):
        calls.append(stage)
        raise Stop

    result = fit(source, callback=callback, **arguments)
    assert result.status == "stopped"
    assert len(calls) == 1  # once stopped, nobody is asked again
    assert np.isfinite(result.angle)


@pytest.mark.parametrize(("fit", "source", "arguments", "method", "estimated"), CASES, ids=IDS)
def test_a_quality_out_of_reach_is_said_on_every_route(fit, source, arguments, method, estimated):
    result = fit(source, target_angle=0.01, depth=1, **arguments)
    if result.angle > 0.01:
        assert result.status == "budget"
        assert "0.01° was not reached" in result.message


def test_a_callback_sees_every_step():
    seen = []
    result = fit_symmetric(H, method="pairs", callback=lambda *step: seen.append(step))
    assert result.status == "converged"
    assert {stage for stage, _, _ in seen} >= {"grow", "polish", "cycle"}
    assert seen[-1][2] == pytest.approx(result.relative_error**2, rel=1e-6)


def test_an_error_in_a_callback_is_the_users_to_see():
    with pytest.raises(ZeroDivisionError):
        fit_symmetric(H, callback=lambda *step: 1 / 0)


@pytest.mark.parametrize(("fit", "matrix"), [(fit_symmetric, H), (fit_rotation, R)])
def test_whoever_waits_is_not_kept_waiting_by_rivals(fit, matrix, monkeypatch):
    def stop(stage, done, objective):
        raise Stop

    assert fit(matrix, callback=stop).rivals
    monkeypatch.setattr(quality, "SMALL", 8)
    result = fit(matrix, callback=stop)
    assert result.rivals == []
    assert "Rivals were not measured" in result.message
    assert fit(matrix).rivals


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_rotation_may_be_a_sparse_tensor():
    Q = np.roll(np.eye(6), 2, axis=0)
    assert fit_rotation(torch.from_numpy(Q).to_sparse()).relative_error < 1e-6
