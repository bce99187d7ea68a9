"""One pass of Jacobi rotations, from samples and from second moments."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim.closed_form import angles_from_moments, angles_from_samples
from swallowtail.wiring import Butterfly


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33])
def test_one_pass_concentrates_rank_one_exactly(n):
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(n, generator=generator, dtype=torch.float64)
    samples = v[:, None] * torch.randn(1, 5, generator=generator, dtype=torch.float64)
    wiring = Butterfly(n)
    angles, turned = angles_from_samples(samples, wiring)
    assert torch.allclose(turned.norm(), samples.norm())
    if n & (n - 1) == 0:  # with dropped pairs, a remainder may stay behind
        assert torch.allclose(turned[0].norm(), samples.norm())
    same = angles_from_moments(samples @ samples.T, wiring)
    again, _ = angles_from_samples(samples[None], wiring)
    assert torch.allclose(again[0], angles)
    assert same.shape == angles.shape


def test_matrix_and_samples_give_the_same_angles():
    Z = torch.randn(9, 40, dtype=torch.float64)
    wiring = Butterfly(9, 2)
    assert torch.allclose(angles_from_samples(Z, wiring)[0], angles_from_moments(Z @ Z.T, wiring), atol=1e-8)
