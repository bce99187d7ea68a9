"""Deterministic problems: GivensLBFGS against γI, its ablations and SciPy; GivensNewton against heavy ball."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from benchmarks.optim.problems import (
    FIRST_SEED,
    Network,
    Row,
    breast_cancer,
    completion,
    curve_rows,
    quadratic,
    rosenbrock,
)
from swallowtail.optim import GivensNewton, minimize_givens


class Deterministic(NamedTuple):
    """A deterministic problem, and the goal of a run."""

    make: Callable[[int], Any]  # of the seed
    limit: int  # evaluations allowed
    gap: float  # the relative gap to reach
    zero: bool  # whether the least value is 0


DETERMINISTIC = {
    "MLP 64-32-10": Deterministic(lambda s: _network((64, 32, 10), s), 400, 0.01, True),
    "MLP 64-64-10": Deterministic(lambda s: _network((64, 64, 10), s), 300, 0.015, True),
    "AE 64-32-8-32-64": Deterministic(lambda s: _network((64, 32, 8, 32, 64), s), 400, 0.1, True),
    "Haar quadratic 128": Deterministic(lambda s: quadratic(128, "haar", s), 1200, 1e-6, True),
    "Rosenbrock 96": Deterministic(lambda s: rosenbrock(96, s), 2500, 1e-6, True),
    "logistic breast-cancer": Deterministic(breast_cancer, 400, 1e-6, False),
    "rotated Rosenbrock 96": Deterministic(lambda s: rosenbrock(96, s, rotated=True), 2500, 1e-6, True),
    "completion 25 × 40": Deterministic(lambda s: completion(25, 40, 4, s), 1000, 1e-5, False),
}
PAPER = {"lr": 1.0, "rate": (0.3, 0.3), "epsilon": 0.01, "normalized_step": None}
PAST = {"lr": 1.0, "criterion": "psgd", "replay": 64, "sweeps": 10, "normalized_step": 0.1, "momentum": 0.8}
NEWTON: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "heavy ball": lambda p: torch.optim.SGD(p, 1.7, momentum=0.85),  # the best median
    "heavy ball, μ = 0.9": lambda p: torch.optim.SGD(p, 1.5, momentum=0.9),  # the best worst case
    "Algorithm 2": lambda p: GivensNewton(p, **PAPER),
    "Algorithm 2, Q = I": lambda p: GivensNewton(p, **{**PAPER, "rate": (0.0, 0.3)}),
    "psgd, replay, momentum": lambda p: GivensNewton(p, **PAST),
    "psgd, replay, momentum, Q = I": lambda p: GivensNewton(p, **PAST, rate=(0.0, 0.1)),
}


class _Reached(Exception):
    """The goal, or the limit, is reached."""


class Watch:
    """Counts evaluations, keeps the best value and when it was found, and stops at a goal or a limit."""

    def __init__(
        self, fun: Callable[[np.ndarray], tuple[float, np.ndarray]], goal: float, limit: int
    ) -> None:
        self.fun, self.goal, self.limit = fun, goal, limit
        self.count, self.best, self.curve, self.reached = 0, np.inf, [], False
        self.start = time.process_time()

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = self.fun(x)
        self.count += 1
        self.best = min(self.best, f)
        self.curve.append((self.count, self.best, time.process_time() - self.start))
        self.reached = self.best <= self.goal
        if self.reached or self.count >= self.limit:
            raise _Reached
        return f, g


def _network(widths: tuple[int, ...], seed: int) -> tuple[Any, np.ndarray]:
    problem = Network(widths, seed, torch.float64)
    return problem.value_and_gradient, problem.start()


def lbfgs(seed: int) -> Iterator[Row]:
    """Evaluations to the goal: γI, Q = I, random Q and learned Q in one code; SciPy's L-BFGS-B beside it."""
    for name, (make, limit, gap, zero) in DETERMINISTIC.items():
        fun, x0 = make(seed)
        least = 0.0
        if not zero:
            options = {"maxcor": 50, "gtol": 1e-13, "ftol": 0.0, "maxiter": 10**5, "maxfun": 10**5}
            least = minimize(fun, x0, jac=True, method="L-BFGS-B", options=options).fun
        f0 = fun(x0)[0]
        contenders: dict[str, tuple[Any, dict[str, Any]]] = {
            label: (minimize_givens, {"preconditioner": p, "gtol": 0.0})
            for label, p in (
                ("γI", "none"), ("Q = I", "diagonal"), ("random Q", "random"), ("GivensLBFGS", "rotated")
            )
        }  # fmt: skip
        for m in (10, 32):
            scipy_options = {"maxcor": m, "gtol": 0.0, "ftol": 0.0, "maxiter": 10**5, "maxfun": 10**5}
            contenders[f"scipy L-BFGS-B({m})"] = ("L-BFGS-B", scipy_options)
        for label, (method, options) in contenders.items():
            watch = Watch(make(seed)[0], least + gap * (f0 - least), limit)
            with suppress(_Reached):
                minimize(watch, x0, jac=True, method=method, options=options)
            yield {
                "part": "lbfgs", "problem": name, "method": label, "seed": seed,
                "evaluations": watch.count if watch.reached else "", "loss": watch.best,
                "seconds": watch.curve[-1][2],
            }  # fmt: skip
            if seed == FIRST_SEED:
                yield from curve_rows("lbfgs", name, label, seed, watch.curve)


def newton(seed: int) -> Iterator[Row]:
    """Gradients to a relative gap of 1e-6 on the paper's synthetic H, n = 64."""
    for label, make in NEWTON.items():
        fun, x0 = quadratic(64, "paper", seed)
        watch = Watch(fun, 1e-6 * fun(x0)[0], 2500)
        u = torch.nn.Parameter(torch.from_numpy(x0))
        optimizer = make([u])
        with suppress(_Reached):
            while True:
                u.grad = torch.from_numpy(watch(u.detach().numpy())[1])
                optimizer.step()
        yield {
            "part": "newton", "problem": "paper's H, n = 64", "method": label, "seed": seed,
            "evaluations": watch.count if watch.reached else "", "loss": watch.best, "seconds": watch.curve[-1][2],
        }  # fmt: skip
        if seed == FIRST_SEED:
            yield from curve_rows("newton", "paper's H, n = 64", label, seed, watch.curve)
