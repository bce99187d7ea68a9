"""Stochastic problems: GivensAdam against Adam and SOAP; GivensNewton's minibatch modes against SGD."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.common.rows import Row
from benchmarks.optim.problems import FIRST_SEED, Network, curve_rows, train
from benchmarks.optim.rivals import SOAP
from swallowtail.optim import GivensAdam, GivensNewton

STOCHASTIC = {
    "MLP 64-64-10": (64, 64, 10),
    "AE 64-32-8-32-64": (64, 32, 8, 32, 64),
    "AE 64-128-16-128-64": (64, 128, 16, 128, 64),
}
BETAS = (0.9, 0.99)
METHODS: dict[str, Callable[[Any, float], torch.optim.Optimizer]] = {
    "Adam": lambda p, lr: torch.optim.Adam(p, lr, betas=BETAS),
    "SOAP": lambda p, lr: SOAP(p, lr),
    "GivensAdam": lambda p, lr: GivensAdam(p, lr),
    "GivensAdam, pairs": lambda p, lr: GivensAdam(p, lr, wiring="pairs", refresh=10),
    "GivensAdam, butterflies": lambda p, lr: GivensAdam(p, lr, wiring="butterfly", refresh=10),
    "GivensAdam, random Q": lambda p, lr: GivensAdam(p, lr, wiring="random"),
}
GRID = (0.007, 0.01, 0.014, 0.02, 0.03, 0.05)
UNTUNED = (0.0003, 0.001, 0.003, 0.01)
UNTUNED_PROBLEMS = ("MLP 64-64-10", "AE 64-32-8-32-64")
TUNING_SEEDS = (1, 2, 3)
# Pairs and butterflies have a rate of their own: groups move by twice the rate. A random basis takes Adam's: it is no
# better than none.
RATES: dict[str, dict[str, float]] = {
    "MLP 64-64-10": {"Adam": 0.02, "SOAP": 0.03, "GivensAdam": 0.014, "pairs": 0.05},
    "AE 64-32-8-32-64": {"Adam": 0.03, "SOAP": 0.03, "GivensAdam": 0.01, "pairs": 0.03},
    "AE 64-128-16-128-64": {"Adam": 0.014, "SOAP": 0.02, "GivensAdam": 0.01, "pairs": 0.02},
}
RATE_OF = {"GivensAdam, random Q": "Adam", "GivensAdam, pairs": "pairs", "GivensAdam, butterflies": "pairs"}
MINIBATCH_PAPER = {"lr": 1.0, "rate": (0.03, 0.3), "epsilon": 0.3, "normalized_step": None}
MINIBATCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 1.0),
    "GivensNewton, two gradients": lambda p: GivensNewton(p, **MINIBATCH_PAPER, gradients="twice"),
    "GivensNewton, reuse × 4": lambda p: GivensNewton(p, **MINIBATCH_PAPER, gradients="reuse", reuse=4),
}


def adam(seed: int, chosen: Sequence[str] = ()) -> Iterator[Row]:
    """Training loss after 1000 minibatches of 64; only the ``chosen`` methods if any, and then without seconds."""
    for name, widths in STOCHASTIC.items():
        for label, make in METHODS.items():
            if chosen and label not in chosen:
                continue
            problem = Network(widths, seed)
            begin = time.process_time()
            rate = RATES[name][RATE_OF.get(label, label)]
            curve = train(problem, make(problem.params, rate), 1000, seed)
            seconds = time.process_time() - begin
            yield {
                "part": "adam", "problem": name, "method": label, "seed": seed, "evaluations": 1000,
                "loss": curve[-1][1], "seconds": "" if chosen else seconds,
            }  # fmt: skip
            if seed == FIRST_SEED:
                points = [(k, f, np.nan if chosen else seconds * k / 1000) for k, f in curve]
                yield from curve_rows("adam", name, label, seed, points)


def rates(seed: int) -> Iterator[Row]:
    """Adam and GivensAdam at rates that nobody tuned: the loss early on and at the end."""
    for name in UNTUNED_PROBLEMS:
        for rate in UNTUNED:
            for label in ("Adam", "GivensAdam"):
                problem = Network(STOCHASTIC[name], seed)
                curve = train(problem, METHODS[label](problem.params, rate), 1000, seed, 250)
                for count, loss in (curve[0], curve[-1]):
                    yield {
                        "part": "rates", "problem": name, "method": label, "seed": seed, "rate": rate,
                        "evaluations": count, "loss": loss, "seconds": "",
                    }  # fmt: skip


def tune() -> None:
    """Print the median loss at every rate of the grid, to choose ``RATES`` from."""
    for name, widths in STOCHASTIC.items():
        for label in ("Adam", "SOAP", "GivensAdam"):
            losses = {}
            for lr in GRID:
                runs = []
                for seed in TUNING_SEEDS:
                    problem = Network(widths, seed)
                    runs.append(train(problem, METHODS[label](problem.params, lr), 1000, seed, 1000)[-1][1])
                losses[lr] = float(np.median(runs))
            best = min(losses, key=lambda lr: losses[lr])
            shown = {lr: round(loss, 4) for lr, loss in losses.items()}
            print(f"{name:24s} {label:12s} best {best:g}", shown, flush=True)


def minibatch(seed: int) -> Iterator[Row]:
    """The paper's minibatch modes against SGD on MLP 64-32-10 after 1000 gradients, rates falling to zero."""
    for label, make in MINIBATCH.items():
        problem = Network((64, 32, 10), seed)
        begin = time.process_time()
        used = _train_minibatch(problem, make(problem.params), seed, 1000)
        with torch.no_grad():
            final = float(problem.loss())
        yield {
            "part": "minibatch", "problem": "MLP 64-32-10", "method": label, "seed": seed, "evaluations": used,
            "loss": final, "seconds": time.process_time() - begin,
        }  # fmt: skip


def _train_minibatch(problem: Network, optimizer: torch.optim.Optimizer, seed: int, limit: int) -> int:
    """Train until ``limit`` gradients are spent, whatever a step takes; the number spent."""
    rng, group, used = np.random.default_rng(seed), optimizer.param_groups[0], 0
    base, shown = group["lr"], group["reuse"] if group.get("gradients") == "reuse" else 1
    index = torch.zeros(0, dtype=torch.int64)

    def closure() -> torch.Tensor:
        nonlocal used
        used += 1
        optimizer.zero_grad()
        loss = problem.loss(index)
        loss.backward()
        return loss

    step = 0
    while used < limit:
        if step % shown == 0:
            index = torch.from_numpy(rng.integers(0, len(problem.X), 64))
        group["lr"] = base * (1 - used / limit)
        optimizer.step(closure)
        step += 1
    return used
