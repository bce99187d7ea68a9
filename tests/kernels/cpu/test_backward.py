"""Gradients where fast and plain passes mix and scales are far from 1."""

import math

import pytest
import torch
from backend_contract import doubles
from cases import assert_close, normal, tolerance
from cpu_checks import EXTREME_ANGLES, ON_DEEP, error

from swallowtail import Butterfly
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu


@ON_DEEP
@pytest.mark.parametrize("kind", EXTREME_ANGLES)
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_at_extreme_angles(wiring, kind, transpose):
    """Fast and plain passes mixed, scales far from 1: the gradients are those of the reference."""
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].float()
    y, g = (normal(1, 9, wiring.n, dtype=torch.float32, seed=seed) for seed in (1, 2))
    expected = reference.rotate_backward(wiring, *doubles(angles, y, g), transpose)
    training = cpu.prepare_training(wiring, angles, y)
    for prepared in (None, training):
        grad_x, grad_angles = cpu.rotate_backward(wiring, angles, y, g, transpose, prepared=prepared)
        together = wiring.n_layers / 4 * torch.finfo(torch.float32).eps  # equal angles round alike
        assert error(grad_x, expected[0].numpy()) <= tolerance(torch.float32, wiring.n_layers) + together
        size = float((y.double().norm(dim=-1) * g.double().norm(dim=-1)).sum())
        worst = float((grad_angles.double() - expected[1]).abs().max())
        assert worst <= (tolerance(torch.float32, wiring.n_layers) + together) * size


def test_gradients_beyond_the_range_of_the_scaled_form():
    """tan θ = 2^7 six times over lengthens y and grad by 2^42 each; their wedge products do not fit float32."""
    wiring = Butterfly(64, 4)
    angles = torch.full((1, wiring.n_rotations), math.pi / 2 - 2.0**-7)
    y, g = (1e7 * normal(1, 4, 64, dtype=torch.float32, seed=seed) for seed in (1, 2))
    expected = reference.rotate_backward(wiring, *doubles(angles, y, g))
    training = cpu.prepare_training(wiring, angles, y)
    assert not training[0].plain.all()
    grad_x, grad_angles = cpu.rotate_backward(wiring, angles, y, g, prepared=training)
    assert torch.isfinite(grad_angles).all()
    size = float((y.double().norm(dim=-1) * g.double().norm(dim=-1)).sum())
    assert float((grad_angles.double() - expected[1]).abs().max()) <= 1e-5 * size
    assert_close(grad_x, expected[0], 1e-5)
