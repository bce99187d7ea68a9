"""Cases for all optimisers: their options, and a small problem. After the OptimizerInfo of PyTorch's test suite."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from swallowtail.optim import GivensAdam, GivensLBFGS, GivensNewton


class Info(NamedTuple):
    """An optimiser and the options to try it with."""

    optim_cls: Any
    options: dict[str, dict[str, Any]]
    step_requires_closure: bool = False


COMMON: dict[str, dict[str, Any]] = {
    "default": {},
    "non-default lr": {"lr": 0.01},
    "Tensor lr": {"lr": torch.tensor(0.01)},
}
INFOS = [
    Info(
        GivensAdam,
        {
            **COMMON,
            "weight_decay": {"weight_decay": 0.1},
            "maximize": {"weight_decay": 0.1, "maximize": True},
            "groups": {"refresh": 3},
            "pairs": {"wiring": "pairs", "refresh": 3},
            "butterfly": {"wiring": "butterfly", "refresh": 3},
            "forloop": {"foreach": False},
        },
    ),
    Info(
        GivensLBFGS,
        {
            **COMMON,
            "maximize": {"maximize": True, "max_iter": 2, "lr": 0.01},
            "no line search": {"line_search_fn": None, "lr": 0.01},
            "plain": {"preconditioner": "none"},
        },
        step_requires_closure=True,
    ),
    Info(
        GivensNewton,
        {
            **COMMON,
            "maximize": {"maximize": True, "lr": 0.01},
            "paper": {"normalized_step": None, "rate": (0.01, 0.02)},
            "direct": {"inverse": "direct"},
            "psgd": {"criterion": "psgd", "replay": 8, "lr": 0.01},
            "logdet": {"criterion": "logdet", "replay": 8, "lr": 0.01, "momentum": 0.5},
        },
    ),
]
CASES = [
    pytest.param(info, kwargs, id=f"{info.optim_cls.__name__}-{name}")
    for info in INFOS
    for name, kwargs in info.options.items()
]
EACH = [pytest.param(info, id=info.optim_cls.__name__) for info in INFOS]


def problem(seed: int = 0, dtype=torch.float32):
    """A small regression with a matrix, a vector, a scalar and a tensor of four axes."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype) * 0.3)
    W, b, scale, kernel = draw(4, 6), draw(4), draw(), draw(3, 2, 2, 2)
    x, y = (
        torch.randn(16, 6, generator=generator).to(dtype),
        torch.randn(16, 4, generator=generator).to(dtype),
    )

    def loss():
        out = torch.nn.functional.linear(x, W, b) * (1 + scale)
        return (out - y).square().mean() + kernel.square().mean()

    return [W, b, scale, kernel], loss


def closure_of(optimizer, loss):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def run(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.step(closure_of(optimizer, loss))
