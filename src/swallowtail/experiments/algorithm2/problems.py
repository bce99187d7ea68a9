"""Functions to minimise for `algorithm2`, and the counting of gradients that every method is measured in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.experiments.common.digits import digits

Loss = Callable[[Tensor | None], Tensor]  # rows of the data (None: all of them) ↦ loss


@dataclass(frozen=True)
class Problem:
    """A loss of some parameters; ``least`` is its smallest value, or 0 where nobody knows it."""

    params: list[Tensor]
    loss: Loss
    n_rows: int = 0  # of the data; 0 if there is none
    least: float = 0.0

    @property
    def size(self) -> int:
        """How many numbers are sought."""
        return sum(p.numel() for p in self.params)


def make_problem(name: str, seed: int, rows: int = 500) -> Problem:
    """A fresh problem at its start: "quadratic", "Rosenbrock", "logistic", "network", "wells"."""
    makers: dict[str, Callable[[], Problem]] = {
        "quadratic": lambda: quadratic(64, seed),
        "Rosenbrock": lambda: rosenbrock(32, seed),
        "logistic": lambda: logistic(seed, rows),
        "network": lambda: digits_network((64, 16, 10), seed, rows),
        "wells": lambda: double_wells(32, seed),
    }
    return makers[name]()


def quadratic(n: int, seed: int) -> Problem:
    """½ (u − u*)ᵀ H (u − u*) with the paper's synthetic H, 5 large eigenvalues, from u = 0."""
    H = torch.from_numpy(random_symmetric(n, 5, seed) + 1e-4 * np.eye(n))
    target = torch.from_numpy(np.random.default_rng(seed).standard_normal(n))
    u = Parameter(torch.zeros(n, dtype=torch.float64))
    return Problem([u], lambda _: 0.5 * (u - target) @ (H @ (u - target)))


def rosenbrock(n: int, seed: int) -> Problem:
    """Σ 100 (u_{i+1} − u_i²)² + (1 − u_i)², from near (−1.2, 1, −1.2, 1, …)."""
    start = np.tile([-1.2, 1.0], n // 2) + 0.1 * np.random.default_rng(seed).standard_normal(n)
    u = Parameter(torch.from_numpy(start))
    return Problem([u], lambda _: (100 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2).sum())


def logistic(seed: int, rows: int) -> Problem:
    """Softmax regression on digits with weight decay 1e-3: convex, so its minimum can be found beforehand."""
    problem = digits_network((64, 10), seed, rows, decay=1e-3)
    return Problem(problem.params, problem.loss, rows, _least_logistic(rows))


@lru_cache(maxsize=4)
def _least_logistic(rows: int) -> float:
    problem = digits_network((64, 10), 0, rows, decay=1e-3)
    options = {"maxcor": 50, "gtol": 1e-10, "ftol": 0.0, "maxiter": 5000, "maxfun": 5000}
    start = _flat(problem.params).numpy().copy()
    return float(minimize(Flat(problem), start, jac=True, method="L-BFGS-B", options=options).fun)


def double_wells(n: int, seed: int) -> Problem:
    """¼ Σ (z_i² − 1)² for z = R u, R a random rotation, from near its maximum at 0: all curvature is negative there."""
    R = torch.from_numpy(random_orthogonal(n, seed))
    u = Parameter(torch.from_numpy(0.1 * np.random.default_rng(seed).standard_normal(n)))
    return Problem([u], lambda _: 0.25 * ((R @ u) ** 2 - 1).square().sum())


def digits_network(widths: tuple[int, ...], seed: int, rows: int, decay: float = 1e-4) -> Problem:
    """A tanh network that tells digits apart: mean cross-entropy and ½ decay ‖u‖²."""
    X, y = digits(rows)
    generator = torch.Generator().manual_seed(seed)
    params: list[Tensor] = []
    for m, n in pairwise(widths):
        W = torch.randn(n, m, generator=generator, dtype=torch.float64) / m**0.5
        params += [Parameter(W), Parameter(torch.zeros(n, dtype=torch.float64))]

    def loss(index: Tensor | None) -> Tensor:
        out, labels = (X, y) if index is None else (X[index], y[index])
        for k in range(0, len(params), 2):
            out = F.linear(out if k == 0 else out.tanh(), params[k], params[k + 1])
        weights = torch.stack([p.square().sum() for p in params]).sum()
        return F.cross_entropy(out, labels) + 0.5 * decay * weights

    return Problem(params, loss, rows)


class LimitReachedError(Exception):
    """As many gradients were computed as were allowed."""


class Flat:
    """Loss and gradient at a flat vector, as SciPy calls them; or at the parameters, as torch does.

    Every call is one gradient. ``curve`` keeps (gradients, least loss so far); past ``limit`` it raises.
    """

    def __init__(self, problem: Problem, limit: int = 10**9) -> None:
        self.problem, self.limit = problem, limit
        self.curve: list[tuple[int, float]] = []

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        k = 0
        with torch.no_grad():
            for p in self.problem.params:
                p.copy_(torch.from_numpy(u[k : k + p.numel()]).view(p.shape))
                k += p.numel()
        return float(self.evaluate()), _flat([_gradient(p) for p in self.problem.params]).numpy().copy()

    def evaluate(self, index: Tensor | None = None) -> Tensor:
        """The loss at the parameters as they are, their ``grad`` filled."""
        if len(self.curve) >= self.limit:
            raise LimitReachedError
        for p in self.problem.params:
            p.grad = None
        loss = self.problem.loss(index)
        loss.backward()
        value = loss.item() if np.isfinite(loss.item()) else np.inf
        self.curve.append((len(self.curve) + 1, min(value, self.curve[-1][1] if self.curve else np.inf)))
        return loss.detach()


def with_torch(optimizer: torch.optim.Optimizer, flat: Flat) -> None:
    """Step until the limit, or until the loss is beyond 10⁹ times what it was: that does not come back."""
    with suppress(LimitReachedError):
        first = float(flat.evaluate())
        while True:
            optimizer.step()
            loss = float(flat.evaluate())
            if not loss < 1e9 * max(first, 1.0):
                return


def with_scipy(method: Any, flat: Flat, **options: Any) -> None:
    """`scipy.optimize.minimize` until the limit, or until it sees nothing left to gain."""
    with suppress(LimitReachedError):
        minimize(flat, _flat(flat.problem.params).numpy().copy(), jac=True, method=method, options=options)


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def _gradient(p: Tensor) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad
