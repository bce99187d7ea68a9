"""The fit on a device beside that of the compiled core."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import random_symmetric
from swallowtail.fitting.core.search import SHORT
from swallowtail.fitting.device.fit import fit_on_device
from swallowtail.fitting.methods.pairs import fit_pairs

H = random_symmetric(32, 6, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_as_good_as_on_the_cpu(dtype):
    A = torch.from_numpy(H).to(dtype)
    # Shorter searches differ: those of the core put rotations in front.
    device = fit_on_device(A, 80, cycles=SHORT)
    core = fit_pairs(A.double().numpy(), 80, cycles=SHORT)
    assert device.found.history[-1][2] < 1.15 * core.history[-1][2]
    X = torch.randn(32, 4, dtype=torch.float64)
    Q = np.eye(32)
    for (i, j), theta in zip(device.found.wiring.pairs, device.found.angles, strict=True):
        G = np.eye(32)
        G[[i, i, j, j], [i, j, i, j]] = np.cos(theta), -np.sin(theta), np.sin(theta), np.cos(theta)
        Q = Q @ G
    np.testing.assert_allclose(
        device.product(X), Q @ np.diag(device.found.eigenvalues) @ Q.T @ X.numpy(), atol=1e-5
    )


def test_the_same_seed_gives_the_same_answer():
    fits = [fit_on_device(torch.from_numpy(H).float(), 80, cycles=2, seed=3).found for _ in range(2)]
    np.testing.assert_array_equal(fits[0].angles, fits[1].angles)
    assert fits[0].history == fits[1].history
