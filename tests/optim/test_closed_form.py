"""One pass of Jacobi rotations, from samples and from second moments."""

from __future__ import annotations

import pytest
import torch
from optim.low_rank import KINDS, check_same_rotations, low_rank_samples

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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 8, 13, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rounding_noise_is_not_rotated(kind, n, dtype):
    """Low rank leaves noise in most coordinates. Samples and moments, in either dtype, leave the same ones alone."""
    z, wiring = low_rank_samples(kind, n), Butterfly(n, 2)
    expected, _ = angles_from_samples(z, wiring)
    assert n < 13 or int((expected == 0).sum()) > wiring.n_rotations // 2
    z = z.to(dtype)
    angles, turned = angles_from_samples(z, wiring)
    check_same_rotations(angles, expected)
    check_same_rotations(angles_from_moments(z @ z.T, wiring), expected)
    assert torch.allclose(turned.norm(), z.norm())


def test_small_but_real_coordinates_are_rotated():
    """What is small and not noise has its angle, also beside something large."""
    z = torch.zeros(4, 2, dtype=torch.float64)
    z[0, 0], z[2] = 1.0, torch.tensor([1e-5, 0.0])
    z[1], z[3] = torch.tensor([0.0, 3e-5]), torch.tensor([0.0, 4e-5])
    wiring = Butterfly(4)  # its first layer pairs (0, 2) and (1, 3)
    for angles in (angles_from_samples(z, wiring)[0], angles_from_moments(z @ z.T, wiring)):
        assert float(angles[1]) == pytest.approx(torch.atan2(torch.tensor(4.0), torch.tensor(3.0)).item())


def test_no_samples_at_all_are_no_rotation():
    zeros = torch.zeros(2, 5, 3)
    assert not angles_from_samples(zeros, Butterfly(5))[0].any()
    assert not angles_from_moments(zeros @ zeros.mT, Butterfly(5)).any()
