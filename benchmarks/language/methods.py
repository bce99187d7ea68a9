"""The optimisers, each as fast as it can be had, and the rate that each one's grid is built on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.optim.rivals import SOAP
from swallowtail.optim import GivensAdam

BETAS = (0.9, 0.99)


class Muon(torch.optim.Optimizer):
    """Muon as published (Jordan et al. 2024), all matrices of one shape in one batch of products."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                by_shape.setdefault(p.shape, []).append(p)
            for shape, params in by_shape.items():
                G = torch.stack([p.grad for p in params])
                state = self.state[params[0]]
                if not state:
                    state["momentum"] = torch.zeros_like(G)
                state["momentum"].lerp_(G, 1 - group["momentum"])
                update = _orthogonal(G.lerp_(state["momentum"], group["momentum"])).to(G.dtype)
                rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                torch._foreach_add_(params, list(update.unbind()), alpha=-rate)


def _orthogonal(G: Tensor, steps: int = 5) -> Tensor:
    """Newton–Schulz for a batch, in bfloat16 on a GPU."""
    X = G.bfloat16() if G.is_cuda else G
    X = X.mT if (tall := G.shape[1] > G.shape[2]) else X
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = 3.4445 * X + torch.baddbmm(A, A, A, beta=-4.7750, alpha=2.0315) @ X
    return X.mT if tall else X


def _adamw(params: Any, rate: float) -> torch.optim.Optimizer:
    params = list(params)
    return torch.optim.AdamW(params, rate, betas=BETAS, weight_decay=0.0, fused=params[0].is_cuda)


def _muon(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Matrices inside the blocks; AdamW for the rest, at 0.15 of the rate."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "blocks" in name]
    others = [p for name, p in named if not (p.ndim == 2 and "blocks" in name)]
    return [Muon(matrices, rate), _adamw(others, 0.15 * rate)]


class Method(NamedTuple):
    """How an optimiser is made for a model, and the rate that its grid is built on."""

    make: Callable[[nn.Module, float], list[torch.optim.Optimizer]]
    rate: float


METHODS = {
    "AdamW": Method(lambda model, rate: [_adamw(model.parameters(), rate)], 1e-3),
    "Muon": Method(_muon, 1e-2),
    "GivensAdam": Method(lambda model, rate: [GivensAdam(model.parameters(), rate)], 1e-3),
    "SOAP": Method(lambda model, rate: [SOAP(model.parameters(), rate, basis="qr")], 1e-3),
}
