"""GivensAdam in the place of torch's Adam and AdamW, nothing else changed, on problems that nobody tuned on.

    python -m benchmarks.optim.dropin      # four minutes

A small convolutional network on digits, a matrix factorisation, and an MLP on scikit-learn's diabetes table. All use
each method's own defaults, a constant rate, and minibatches of 64. AdamW, and GivensAdam beside it, decay by 0.01.
Rows are losses on all training data after 20, 100 and 500 steps, and on held-out data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.common.rows import Row, write_rows
from benchmarks.optim.report import write_report
from swallowtail.optim import GivensAdam

SEEDS = range(500, 503)
RATES = (3e-4, 1e-3, 1e-2)
POINTS = (20, 100, 500)
BATCH = 64
METHODS: dict[str, Callable[[Any, float], torch.optim.Optimizer]] = {
    "Adam": lambda p, lr: torch.optim.Adam(p, lr),
    "GivensAdam": lambda p, lr: GivensAdam(p, lr),
    "AdamW": lambda p, lr: torch.optim.AdamW(p, lr),
    "GivensAdam, decay 0.01": lambda p, lr: GivensAdam(p, lr, weight_decay=0.01),
}


class Problem:
    """A model, its data in two parts, and the loss on some of either."""

    def __init__(self, model: nn.Module, data: tuple[Tensor, ...], n_train: int, loss: Any) -> None:
        self.model, self._data, self.n_train, self._loss = model, data, n_train, loss

    def loss(self, index: Any) -> Tensor:
        found: Tensor = self._loss(self.model, *(part[index] for part in self._data))
        return found

    def losses(self) -> tuple[float, float]:
        """On all training data, and on the rest."""
        with torch.no_grad():
            return tuple(float(self.loss(s)) for s in (slice(self.n_train), slice(self.n_train, None)))  # type: ignore[return-value]


@lru_cache(maxsize=2)
def _table(name: str) -> tuple[Tensor, Tensor]:
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return torch.tensor(X[order], dtype=torch.float32), torch.tensor(y[order])


def convolutions(seed: int) -> Problem:
    X, y = _table("digits")
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    return Problem(model, (X.view(-1, 1, 8, 8) / 16, y), 1400, lambda net, x, t: F.cross_entropy(net(x), t))


class Factors(nn.Module):
    """Rows and columns of a matrix as vectors of 12 numbers."""

    def __init__(self, m: int, n: int) -> None:
        super().__init__()
        self.left, self.right = (nn.Parameter(0.3 * torch.randn(k, 12)) for k in (m, n))

    def forward(self, i: Tensor, j: Tensor) -> Tensor:
        return (self.left[i] * self.right[j]).sum(-1)


def factorisation(seed: int) -> Problem:
    """Entries of a 120 × 90 matrix of rank 8 and a little noise; a third are held out."""
    rng = np.random.default_rng(seed)
    A = (rng.standard_normal((120, 8)) * np.logspace(0, -1, 8)) @ rng.standard_normal((8, 90))
    A += 0.05 * rng.standard_normal(A.shape)
    places = torch.from_numpy(rng.permutation(A.size))
    values = torch.tensor(A.ravel(), dtype=torch.float32)[places]
    torch.manual_seed(seed)
    data = places // 90, places % 90, values
    return Problem(Factors(120, 90), data, 7200, lambda net, i, j, a: (net(i, j) - a).square().mean())


def regression(seed: int) -> Problem:
    X, y = _table("diabetes")
    X, y = X / X.std(0), ((y - y.mean()) / y.std()).float()[:, None]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    return Problem(model, (X, y), 350, lambda net, x, t: F.mse_loss(net(x), t))


PROBLEMS = {"CNN, digits": convolutions, "factorisation": factorisation, "MLP, diabetes": regression}


def run(name: str, label: str, rate: float, seed: int) -> Iterator[Row]:
    """One run: losses at the points."""
    problem, rng = PROBLEMS[name](seed), np.random.default_rng(seed)
    optimizer = METHODS[label](problem.model.parameters(), rate)
    for k in range(1, max(POINTS) + 1):
        index = torch.from_numpy(rng.integers(0, problem.n_train, BATCH))
        optimizer.zero_grad()
        problem.loss(index).backward()
        optimizer.step()
        if k in POINTS:
            loss, held_out = problem.losses()
            yield {
                "problem": name, "method": label, "seed": seed, "rate": rate, "step": k, "loss": loss,
                "held_out": held_out,
            }  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    jobs = [(p, m, lr, seed) for seed in SEEDS for p in PROBLEMS for lr in RATES for m in METHODS]
    rows = [row for job in tqdm(jobs, unit="run") for row in run(*job)]
    print("rows:", write_rows("optim-dropin", rows, "python -m benchmarks.optim.dropin"))
    write_report()


if __name__ == "__main__":
    main()
