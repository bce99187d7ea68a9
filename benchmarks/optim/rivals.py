"""Rivals of the optimisers that PyTorch does not have: SOAP and Muon, as published, without frills."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def as_matrix(shape: torch.Size) -> tuple[int, int] | None:
    """(out, everything else), or None for what has no two sides."""
    sides = (shape[0], math.prod(shape[1:])) if len(shape) >= 2 else (0, 0)
    return sides if min(sides) > 1 else None


class SOAP(torch.optim.Optimizer):
    """Adam in the eigenbases of the moving averages of GGᵀ and GᵀG (Vyas et al. 2024).

    Args:
        basis: every ``refresh`` steps "eigh" takes the exact eigenvectors; "qr" takes one step of orthogonal
            iteration from the last ones, as the authors' own code does, and costs less.
        max_side: longer sides are not rotated.

    The first moment is kept in the basis and turned when that changes: the same as projecting it every step,
    for two products less.
    """

    def __init__(
        self, params: Any, lr: float = 3e-3, betas: tuple[float, float] = (0.9, 0.99), refresh: int = 10,
        basis: str = "eigh", decay: float = 0.95, eps: float = 1e-8, max_side: int = 10_000,
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "betas": betas, "refresh": refresh, "basis": basis, "decay": decay, "eps": eps}
        super().__init__(params, {**defaults, "max_side": max_side})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)

    def _update(self, p: Tensor, group: dict[str, Any]) -> None:
        s, shape, (b1, b2) = self.state[p], as_matrix(p.shape), group["betas"]
        G = p.grad if shape is None else p.grad.reshape(shape)
        if not s:
            s.update(t=0, m=torch.zeros_like(G), v=torch.zeros_like(G), Q=[None, None])
            s["C"] = [p.new_zeros(k, k) if k <= group["max_side"] else None for k in shape or ()]
        s["t"] += 1
        t = s["t"]
        for C, A in zip(s["C"], (G, G.T) if shape else (), strict=True):
            if C is not None:
                C.lerp_(A @ A.T, 1 - group["decay"])
        if shape is not None and (t == 1 or t % group["refresh"] == 0):
            m = _turn(s["m"], s["Q"], back=True)
            s["Q"] = [_basis(C, Q, group["basis"]) for C, Q in zip(s["C"], s["Q"], strict=True)]
            s["m"] = _turn(m, s["Q"])
        Z = _turn(G, s["Q"])
        s["m"].lerp_(Z, 1 - b1)
        s["v"].mul_(b2).addcmul_(Z, Z, value=1 - b2)
        u = s["m"] / ((s["v"] / (1 - b2**t)).sqrt_().add_(group["eps"]))
        p.add_(_turn(u, s["Q"], back=True).reshape(p.shape), alpha=-group["lr"] / (1 - b1**t))


def _turn(A: Tensor, Q: list[Tensor | None], back: bool = False) -> Tensor:
    left, right = Q
    if left is not None:
        A = (left if back else left.T) @ A
    if right is not None:
        A = A @ (right.T if back else right)
    return A


def _basis(C: Tensor | None, last: Tensor | None, how: str) -> Tensor | None:
    if C is None:
        return None
    if how == "eigh":
        return torch.linalg.eigh(C)[1]
    if last is None:
        return torch.linalg.qr(C)[0]  # one step from the identity
    # The order of the columns is kept, so that the second moments stay where they belong.
    return torch.linalg.qr(C @ last)[0]


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal by five steps of Newton–Schulz for matrices (Jordan et al. 2024), Adam for the rest.

    Matrices move by lr · √max(1, out/in), as published; vectors by Adam at ``lr_vectors``.
    """

    def __init__(
        self, params: Any, lr: float = 0.02, lr_vectors: float = 3e-3, momentum: float = 0.95
    ) -> None:
        params = list(params)
        super().__init__(params, {"lr": lr, "lr_vectors": lr_vectors, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                s, shape = self.state[p], as_matrix(p.shape)
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                if shape is None:
                    # The schedule moves lr alone; the vectors' rate follows it.
                    rate = group["lr"] * group["lr_vectors"] / self.defaults["lr"]
                    s["m"].lerp_(p.grad, 0.1)
                    s["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                    below = (s["v"] / (1 - 0.99 ** s["t"])).sqrt_().add_(1e-8)
                    p.addcdiv_(s["m"], below, value=-rate / (1 - 0.9 ** s["t"]))
                    continue
                s["m"].lerp_(p.grad, 1 - group["momentum"])
                nesterov = p.grad.lerp(s["m"], group["momentum"]).reshape(shape)
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                p.add_(orthogonal(nesterov).reshape(p.shape), alpha=-group["lr"] * scale)


def orthogonal(G: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly: singular values end between 0.7 and 1.2."""
    X = G / (G.norm() + 1e-7)
    X = X.T if (tall := G.shape[0] > G.shape[1]) else X
    for _ in range(steps):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * (A @ A)) @ X
    return X.T if tall else X
