"""From one basis to the next: what becomes of the moments."""

from __future__ import annotations

import torch
from optim.adam.training import trained

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam.bases import Bases, carry_over
from swallowtail.optim.adam.fit import new_side, refit
from swallowtail.optim.adam.state import SIDES


def test_first_moment_survives_a_change_of_basis():
    (W,), optimizer = trained(lambda p: GivensAdam(p, 1e-2, wiring="pairs"), [(8, 6)], steps=9)
    state = optimizer.state[W]
    before = Bases([state], (8, 6), 2).from_basis(state["exp_avg"][None])[0]
    g = torch.randn(8, 6, dtype=torch.float64)
    W.grad = g.clone()
    angles = state["left_angles"].clone()
    optimizer.step()
    after = Bases([state], (8, 6), 2).from_basis(state["exp_avg"][None])[0]
    assert angles.shape != state["left_angles"].shape or not torch.equal(angles, state["left_angles"])
    assert torch.allclose(after, before.lerp(g, 0.1))


def test_second_moments_follow_the_pairs():
    """With one eigenbasis the second moments are known: E z² in the new basis, whatever the old one was."""
    generator = torch.Generator().manual_seed(0)
    m, n = 6, 4
    spread = torch.rand(n, m, generator=generator, dtype=torch.float64)
    eye = [torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=torch.float64))[0] for k in (m, n)]
    group = {"depth": 4, "statistics": "covariance"}
    like = torch.zeros((), dtype=torch.float64)
    states = []
    for covariances in (
        (torch.eye(m), torch.eye(n)),
        (eye[0] * torch.arange(1, m + 1) @ eye[0].T, eye[1] * torch.arange(1, n + 1) @ eye[1].T),
    ):
        state = {"exp_avg": torch.zeros(n, m, dtype=torch.float64), "exp_avg_sq": spread.clone()}
        for side, covariance in zip(SIDES, covariances, strict=True):
            state.update(new_side(side, "pairs", (m, n), group, like))
            state[side.covariance] = covariance.to(torch.float64)
        refit([state], (m, n), group["depth"])
        states.append(state)
    old, new = (Bases([state], (m, n), 2) for state in states)
    carry_over(old, new, [states[0]])
    # Uncorrelated entries with variances `spread` in the old basis (the identity), seen from the new one.
    draws = spread.sqrt() * torch.randn(20000, n, m, generator=generator, dtype=torch.float64)
    seen = new.to_basis(draws.mT.contiguous()).square().mean(0)
    assert not torch.allclose(seen, spread, rtol=0.2)
    assert torch.allclose(seen, states[0]["exp_avg_sq"], rtol=0.06)
