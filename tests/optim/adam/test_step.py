"""The update: Adam where nothing is rotated, Adam on rotated parameters, stacks."""

from __future__ import annotations

import pytest
import torch
from optim.adam.training import trained

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam.bases import Bases


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_without_rotation_it_is_adamw(weight_decay):
    shapes = [(5, 7), (3,), (), (4, 3, 2, 2), (6, 1)]
    ours, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring="identity", weight_decay=weight_decay), shapes)
    theirs, _ = trained(
        lambda p: torch.optim.AdamW(p, 1e-2, betas=(0.9, 0.99), weight_decay=weight_decay), shapes
    )
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p, q, rtol=1e-12)


@pytest.mark.parametrize("wiring", ["pairs", "butterfly", "random"])
def test_a_fixed_basis_is_adam_on_rotated_parameters(wiring):
    """With a basis that never changes after the first step, W is Q_L W̃ Q_Rᵀ with W̃ under plain Adam."""
    (W,), optimizer = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, refresh=10**6), [(8, 6)])
    bases = Bases([optimizer.state[W]], (8, 6), 2)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    rotated = torch.nn.Parameter(bases.to_basis(start[None])[0].mT.contiguous())
    plain = torch.optim.Adam([rotated], 1e-2, betas=(0.9, 0.99))
    for _ in range(15):
        here = bases.from_basis(rotated.detach().mT.contiguous()[None])[0]
        g = torch.randn(8, 6, generator=generator, dtype=torch.float64) + 0.1 * here
        rotated.grad = bases.to_basis(g[None])[0].mT.contiguous()
        plain.step()
    assert torch.allclose(bases.from_basis(rotated.detach().mT.contiguous()[None])[0], W.detach(), atol=1e-10)


@pytest.mark.parametrize("wiring", ["auto", "butterfly"])
def test_foreach_and_forloop_agree(wiring):
    shapes = [(6, 5), (6, 5), (5,), (6, 5), (5,), (3, 3)]
    together, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, foreach=True), shapes, steps=25)
    alone, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, foreach=False), shapes, steps=25)
    for p, q in zip(together, alone, strict=True):
        assert torch.allclose(p, q, rtol=1e-10)
