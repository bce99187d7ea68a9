"""Problems of the optimisers' benchmark: digits networks, quadratics, Rosenbrock, logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.rows import Row
from swallowtail.datasets import random_orthogonal

DIGITS_TRAIN = 1500
FIRST_SEED = 500  # development used 1 … 5


@lru_cache(maxsize=2)
def digits(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """1500 digits of 8×8 pixels in [0, 1] and their labels."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:DIGITS_TRAIN]
    return torch.tensor(X[order] / 16.0, dtype=dtype), torch.tensor(y[order])


class Network:
    """A tanh network on digits, its parameters a list of tensors; ``loss(index)`` on some or all of the data.

    Args:
        widths: layer widths. The last is 10 for a classifier (cross-entropy) or 64 for an autoencoder (½‖·‖²).
        seed: of the start.
        dtype: of everything.
    """

    def __init__(self, widths: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.X, self.y = digits(dtype)
        self.autoencoder = widths[-1] == 64
        self.decay = 1e-5 if self.autoencoder else 1e-4
        self.params: list[Tensor] = []
        for m, n in pairwise(widths):
            W = torch.randn(n, m, generator=generator, dtype=torch.float64).to(dtype) / m**0.5
            self.params += [torch.nn.Parameter(W), torch.nn.Parameter(torch.zeros(n, dtype=dtype))]

    def loss(self, index: Tensor | None = None) -> Tensor:
        X, y = (self.X, self.y) if index is None else (self.X[index], self.y[index])
        out = X
        for k in range(0, len(self.params), 2):
            out = F.linear(out, self.params[k], self.params[k + 1])
            out = out if k + 2 == len(self.params) else out.tanh()
        data = 0.5 * (out - X).square().sum() / len(X) if self.autoencoder else F.cross_entropy(out, y)
        return data + 0.5 * self.decay * sum((p.square().sum() for p in self.params), torch.zeros(()))

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss on all data and its gradient at a flat vector, for SciPy."""
        k = 0
        with torch.no_grad():
            for p in self.params:
                p.copy_(torch.from_numpy(x[k : k + p.numel()]).view(p.shape))
                k += p.numel()
        loss = self.loss()
        grads = torch.autograd.grad(loss, self.params)
        return loss.item(), torch.cat([g.reshape(-1) for g in grads]).double().numpy()

    def start(self) -> np.ndarray:
        return torch.cat([p.detach().reshape(-1) for p in self.params]).double().numpy()


def quadratic(
    n: int, kind: str, seed: int
) -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray]:
    """½ (x − x*)ᵀ H (x − x*): eigenvalues over four decades ("haar"), or the paper's with 5 large ones ("paper")."""
    rng = np.random.default_rng(seed)
    U = np.asarray(random_orthogonal(n, seed))
    d = np.logspace(0, -4, n)
    if kind == "paper":
        d = np.abs(0.1 * rng.standard_normal(n)) + 1e-4
        d[:5] = np.abs(1 + 0.4**0.5 * rng.standard_normal(5))
    H, target = (U * d) @ U.T, rng.standard_normal(n)

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        g = H @ (x - target)
        return float(0.5 * (x - target) @ g), g

    return fun, np.zeros(n)


def rosenbrock(
    n: int, seed: int, rotated: bool = False
) -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray]:
    """The chained Rosenbrock function, from near (−1.2, 1, −1.2, 1, …); in other coordinates if ``rotated``."""
    from scipy.optimize import rosen, rosen_der

    start = np.tile([-1.2, 1.0], n // 2) + 0.1 * np.random.default_rng(seed).standard_normal(n)
    if not rotated:
        return (lambda x: (float(rosen(x)), rosen_der(x))), start
    U = np.asarray(random_orthogonal(n, seed))
    return (lambda x: (float(rosen(U @ x)), U.T @ rosen_der(U @ x))), U.T @ start


def completion(
    m: int, n: int, rank: int, seed: int
) -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray]:
    """Both factors of a matrix of that rank, half of whose entries are seen; λ = 1e-3."""
    rng = np.random.default_rng(seed)
    A = (rng.standard_normal((m, rank)) * np.logspace(0, -1, rank)) @ rng.standard_normal((rank, n))
    seen, cut = rng.random((m, n)) < 0.5, m * rank

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        U, V = x[:cut].reshape(m, rank), x[cut:].reshape(rank, n)
        R = seen * (U @ V - A)
        slope = np.concatenate([(R @ V.T).ravel(), (U.T @ R).ravel()])
        return 0.5 * float((R * R).sum() + 1e-3 * (x @ x)), slope + 1e-3 * x

    return fun, 0.3 * rng.standard_normal((m + n) * rank)


def breast_cancer(seed: int) -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray]:
    """Logistic regression with a bias and λ = 1e-4."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = np.hstack([(X - X.mean(0)) / X.std(0), np.ones((len(X), 1))])
    sign = 2.0 * y - 1

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (X @ w)
        value = np.logaddexp(0, -margin).mean() + 5e-5 * w @ w
        return float(value), -(X.T @ (sign / (1 + np.exp(margin)))) / len(margin) + 1e-4 * w

    return fun, 0.1 * np.random.default_rng(seed).standard_normal(X.shape[1])


def train(
    problem: Network, optimizer: torch.optim.Optimizer, steps: int, seed: int, every: int = 50
) -> list[tuple[int, float]]:
    """Minibatches of 64 with the learning rate falling linearly to zero; (gradients, loss on all data) on the way."""
    rng = np.random.default_rng(seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 - k / steps)
    curve = []
    for k in range(steps):
        index = torch.from_numpy(rng.integers(0, DIGITS_TRAIN, 64))
        optimizer.zero_grad()
        problem.loss(index).backward()
        optimizer.step()
        schedule.step()
        if (k + 1) % every == 0:
            with torch.no_grad():
                curve.append((k + 1, float(problem.loss())))
    return curve


def curve_rows(
    part: str, problem: str, method: str, seed: int, points: list[tuple[int, float, float]]
) -> Iterator[Row]:
    """About forty points of a curve as rows."""
    for count, loss, seconds in points[:: max(1, len(points) // 40)]:
        yield {
            "part": f"curve {part}", "problem": problem, "method": method, "seed": seed, "evaluations": count,
            "loss": loss, "seconds": seconds,
        }  # fmt: skip
