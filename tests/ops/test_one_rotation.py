"""The shortest way to a differentiable Q x."""

import pytest
import torch
from cases import normal, random_angles

from swallowtail import Butterfly, kernels, ops


@pytest.mark.parametrize("transpose", [False, True])
def test_a_training_step_prepares_once(monkeypatch, transpose):
    """Backward finds forward's coefficients, but not those of angles it was not given."""
    backend, counted = kernels.load("cpu"), []
    make = backend.prepare_training
    monkeypatch.setattr(backend, "prepare_training", lambda *a: counted.append(1) or make(*a))
    wiring = Butterfly(16, reverse=transpose)
    function = ops.rotate_transpose if transpose else ops.rotate
    x, g = normal(3, 16).requires_grad_(), normal(3, 16, seed=1)
    first, second = (random_angles(wiring, seed=seed).requires_grad_() for seed in (1, 2))
    outputs = [function(x, wiring, angles) for angles in (first, second)]
    assert len(counted) == 2
    for angles, y in zip((first, second), outputs, strict=True):
        actual = torch.autograd.grad(y, (x, angles), g)
        with kernels.use_backend("reference"):
            expected = torch.autograd.grad(function(x, wiring, angles), (x, angles), g)
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(actual, expected, strict=True))
    assert len(counted) == 2
