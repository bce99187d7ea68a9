"""What is kept of past gradients."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim.adam.state import LEFT, RIGHT, SIDES, Stack
from swallowtail.optim.adam.statistics import covariances, new_statistics, observe, samples

M, N = 6, 4
GROUP = {
    "statistics": "auto", "sketch_columns": 3, "sketch_steps": 2, "statistics_decay": 0.75,
    "betas": (0.9, 0.99), "lr": 0.1, "eps": 1e-8, "weight_decay": 0.0, "maximize": False, "refresh": 10,
}  # fmt: skip


def observed(kind, n_steps):
    """A stack with empty records that has seen some gradients."""
    like = torch.zeros((), dtype=torch.float64)
    state = {"step": torch.zeros(())}
    for side in SIDES:
        state.update(new_statistics(side, kind, (M, N), GROUP, like))
    stack = Stack(GROUP, (M, N), [torch.nn.Parameter(like)], [state])
    gradients = [torch.randn(M, N, dtype=torch.float64) for _ in range(n_steps)]
    for G in gradients:
        stack.begin_step()
        observe(stack, G[None])
        state["step"] += 1
    return state, gradients


def test_covariances_are_moving_averages():
    state, (G, H) = observed("pairs", 2)
    for side, first, second in ((LEFT, G @ G.T, H @ H.T), (RIGHT, G.T @ G, H.T @ H)):
        assert torch.allclose(covariances([state], side)[0], 0.25 * (0.75 * first + second))


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_sketches_hold_columns_of_the_last_gradients(side):
    state, gradients = observed("butterfly", 5)
    z = samples([state], side)[0]  # shape: (side, slots · columns)
    assert z.shape == ((M, N)[side.axis], 2 * 3)
    for slot, G in ((0, gradients[4]), (1, gradients[3])):
        columns = list((G.T if side.axis else G).T)
        for column in z[:, 3 * slot : 3 * slot + 3].T:
            assert any(torch.equal(column, other) for other in columns)
