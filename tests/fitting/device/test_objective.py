"""The objective on a device is that of the compiled core."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import random_symmetric
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.device.objective import DeviceObjective

H = 3e5 * random_symmetric(30, 5, 1)
RNG = np.random.default_rng(0)
PAIRS, ANGLES = np.stack([RNG.permutation(30)[:2] for _ in range(80)]), RNG.uniform(-1, 1, 80)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_values_gradients_losses_and_eigenvalues(dtype, rounding):
    core, device = Objective(H), DeviceObjective(torch.from_numpy(H).to(dtype))
    f, g = core(PAIRS, ANGLES)
    value, gradient = device(PAIRS, ANGLES)
    assert value == pytest.approx(f, abs=rounding)
    np.testing.assert_allclose(gradient, g, atol=rounding * np.abs(g).max())
    losses = core.removal_losses(PAIRS, ANGLES)
    np.testing.assert_allclose(
        device.removal_losses(PAIRS, ANGLES), losses, atol=rounding * np.abs(losses).max()
    )
    np.testing.assert_allclose(
        device.eigenvalues(PAIRS, ANGLES), core.eigenvalues(PAIRS, ANGLES), atol=rounding * 3e5
    )
    assert device.of_residual(device.residual(PAIRS, ANGLES)) == pytest.approx(f, abs=rounding)


def test_the_polish_goes_where_that_of_the_core_goes():
    core, device = Objective(H), DeviceObjective(torch.from_numpy(H))
    x, f = core.polish(PAIRS, ANGLES, 15)
    y, value = device.polish(PAIRS, ANGLES, 15)
    assert value == pytest.approx(f, rel=1e-6)
    np.testing.assert_allclose(y, x, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_regrowth_adds_what_was_asked_and_helps(seed):
    device = DeviceObjective(torch.from_numpy(H))
    pairs, angles = device.regrow(PAIRS, ANGLES, 10, 1.0, np.random.default_rng(seed))
    assert len(pairs) == len(angles) == 90
    assert device(pairs, angles)[0] < device(PAIRS, ANGLES)[0]
