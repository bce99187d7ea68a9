"""Adam's direction: its bound, and that entries which agree go further."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam.direction import GAIN, direction_bound, further, gain_of


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.5, 0.9), (0.0, 0.999)])
def test_the_bound_is_what_adam_can_reach(betas):
    """The worst gradients are those that Cauchy–Schwarz is met by; none do better, and these do as well."""
    beta1, beta2 = betas
    for t in (1, 2, 7, 40):
        first = torch.tensor([(1 - beta1) * beta1 ** (t - k) for k in range(1, t + 1)], dtype=torch.float64)
        second = torch.tensor([(1 - beta2) * beta2 ** (t - k) for k in range(1, t + 1)], dtype=torch.float64)
        worst = first / second
        reached = (first @ worst / first.sum()) / (second @ worst.square() / second.sum()).sqrt()
        assert direction_bound(beta1, beta2, t) == pytest.approx(float(reached), rel=2e-3)


def test_agreement_goes_further_and_noise_does_not():
    u = torch.tensor([0.23, -0.23, 1.0, -1.0, 2.0], dtype=torch.float64)
    found = further(u, u.square().clamp(max=1), GAIN) / u
    expected = torch.tensor([1.0, 1.0, 1 + GAIN, 1 + GAIN, 1 + GAIN], dtype=torch.float64)
    assert torch.allclose(found, expected, rtol=1e-3)
    assert torch.equal(further(u, u.square().clamp(max=1), 0.0), u)


def test_one_gradient_says_nothing_about_agreement():
    assert gain_of(0.9, 1) == 0
    assert gain_of(0.9, 200) == pytest.approx(GAIN)


def test_gradients_that_agree_move_a_matrix_further():
    """In its bases the same gradient of rank one is a single entry."""
    moved = []
    for steps in (5, 40):
        p = torch.nn.Parameter(torch.zeros(6, 5, dtype=torch.float64))
        optimizer = GivensAdam([p], 1e-3)
        for _ in range(steps):
            before = p.detach().clone()
            p.grad = torch.outer(torch.arange(1.0, 7.0), torch.arange(1.0, 6.0)).double()
            optimizer.step()
        moved.append(float((p.detach() - before).norm()))
    assert moved[0] == pytest.approx(2e-3, rel=1e-3)  # the first step in the bases
    assert moved[1] == pytest.approx(2e-3 * (1 + GAIN), rel=0.05)
