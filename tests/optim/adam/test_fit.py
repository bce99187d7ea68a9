"""Which basis a side gets, and what its fit does to gradients."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim.adam.bases import Bases
from swallowtail.optim.adam.fit import matrix_shape, new_side, refit
from swallowtail.optim.adam.state import SIDES, Stack
from swallowtail.optim.adam.statistics import observe

SETTINGS = {
    "depth": 2, "statistics": "sketch", "sketch_columns": 4, "sketch_steps": 5, "statistics_decay": 0.9,
    "lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "maximize": False, "refresh": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), None), ((5,), None), ((5, 1), None), ((1, 5), None), ((4, 5), (4, 5)), ((8, 3, 2, 2), (8, 12))],
)
def test_matrix_shape(shape, expected):
    assert matrix_shape(torch.Size(shape)) == expected


@pytest.mark.parametrize("statistics", ["sketch", "covariance"])
@pytest.mark.parametrize("kind", ["pairs", "butterfly"])
def test_bases_decorrelate_planted_gradients(kind, statistics):
    """Gradients a bᵀ + noise: in the learned basis most of the energy is in one entry."""
    group = {**SETTINGS, "statistics": statistics}
    like = torch.zeros((), dtype=torch.float64)
    state = {"step": torch.zeros(()), "exp_avg": like}
    for side in SIDES:
        state.update(new_side(side, kind, (16, 8), group, like))
    stack = Stack(group, (16, 8), [torch.nn.Parameter(like)], [state])
    a, b = torch.randn(16, 1, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    for _ in range(10):
        G = (a @ b) * torch.randn((), dtype=torch.float64) + 0.01 * torch.randn(16, 8, dtype=torch.float64)
        stack.begin_step()
        observe(stack, G[None])
        state["step"] += 1
    refit([state], (16, 8), group["depth"])
    bases = Bases([state], (16, 8), 2)
    Z = bases.to_basis(G[None])
    assert torch.allclose(bases.from_basis(Z)[0], G)
    assert float(Z.abs().max() / Z.norm()) > 0.95
