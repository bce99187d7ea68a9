"""The runs behind `algorithm2`: who competes, with which settings, on what."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from swallowtail.experiments.algorithm2.descent import Details, descend
from swallowtail.experiments.algorithm2.problems import Flat, Problem, make_problem, with_scipy, with_torch
from swallowtail.experiments.common.rows import Row
from swallowtail.optim import GivensAdam, GivensNewton, minimize_givens

POINTS = 40  # of a curve in the rows
BATCH = 64
PAPER = "Algorithm 2"
GOALS = {"quadratic": 1e-6, "Rosenbrock": 1e-4, "logistic": 1e-3, "network": 0.03}  # relative gaps
# Chosen on seeds 1 and 2: learning rates of heavy ball (μ = 0.9), Adam and GivensAdam; α, β, ε of Algorithm 2.
SETTINGS: dict[str, dict[str, Any]] = {
    "quadratic": {"heavy ball": 1.5, "Adam": 0.3, PAPER: Details(0.3, 1.0, 0.01)},
    "Rosenbrock": {"heavy ball": 0.001, "Adam": 0.3, PAPER: Details(1e-7, 1e-3, 1.0)},
    "logistic": {"heavy ball": 3.0, "Adam": 0.3, "GivensAdam": 0.1, PAPER: Details(6.0, 1.0, 0.3)},
    "network": {"heavy ball": 0.3, "Adam": 0.03, "GivensAdam": 0.03, PAPER: Details(1.0, 1.0, 0.1)},
    "wells": {PAPER: Details(0.3, 0.03, 0.3)},  # for the details alone
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as in the text": {},
    "step along Ĥ∇ℓ, as printed": {"printed": True},
    "inverse learned directly": {"direct": True},
    "no floor ε": {"floor": False},
    "negative elements kept": {"negative_to_epsilon": False},
    "no 1/‖δu‖": {"scaled": False},
}
NEWTON: dict[str, Any] = {"lr": 1.0, "rate": (0.03, 0.3), "epsilon": 0.3, "normalized_step": None}
MINIBATCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 1.0),
    "Adam": lambda p: torch.optim.Adam(p, 0.03, betas=(0.9, 0.99)),
    "GivensAdam": lambda p: GivensAdam(p, 0.01),
    f"{PAPER}, two gradients": lambda p: GivensNewton(p, **NEWTON, gradients="twice"),
    f"{PAPER}, reuse 2": lambda p: GivensNewton(p, **NEWTON, gradients="reuse", reuse=2),
    f"{PAPER}, reuse 4": lambda p: GivensNewton(p, **NEWTON, gradients="reuse", reuse=4),
    f"{PAPER}, reuse 8": lambda p: GivensNewton(p, **NEWTON, gradients="reuse", reuse=8),
}


def contenders(problem: str) -> dict[str, Callable[[Flat], None]]:
    """Methods for a problem: each minimises what it is given until the limit."""
    settings = SETTINGS[problem]
    how: Details = settings[PAPER]
    newton: dict[str, Any] = {"lr": how.lr, "rate": how.rate, "epsilon": how.epsilon, "normalized_step": None}
    methods: dict[str, Callable[[Flat], None]] = {
        PAPER: lambda flat: with_torch(GivensNewton(flat.problem.params, **newton), flat),
        "heavy ball": lambda flat: with_torch(
            torch.optim.SGD(flat.problem.params, settings["heavy ball"], momentum=0.9), flat
        ),
        "Adam": lambda flat: with_torch(torch.optim.Adam(flat.problem.params, settings["Adam"]), flat),
        "L-BFGS": lambda flat: with_scipy("L-BFGS-B", flat, gtol=0.0, ftol=0.0, maxiter=10**5, maxfun=10**5),
        "truncated Newton": lambda flat: with_scipy("Newton-CG", flat, xtol=1e-14, maxiter=10**5),
        "GivensLBFGS": lambda flat: with_scipy(minimize_givens, flat, gtol=0.0),
    }
    if "GivensAdam" in settings:  # on a vector it is Adam
        rate = settings["GivensAdam"]
        methods["GivensAdam"] = lambda flat: with_torch(GivensAdam(flat.problem.params, rate), flat)
    return methods


def batch_rows(name: str, limit: int, seed: int, rows: int) -> list[Row]:
    """Every contender on one problem: a row with gradients to the goal, and its curve."""
    result: list[Row] = []
    for method, minimise in contenders(name).items():
        problem = make_problem(name, seed, rows)
        flat = Flat(problem, limit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a step skipped, or a line search at the end of its precision
            minimise(flat)
        gaps = _gaps(problem, flat.curve)
        reached = [count for count, gap in gaps if gap <= GOALS[name]]
        common = {"problem": name, "method": method, "seed": seed}
        goal = {"gradients": min(reached) if reached else None, "gap": gaps[-1][1], "limit": limit}
        result.append({"part": "goal", **common, **goal})
        places = np.unique(np.geomspace(1, len(gaps), POINTS).astype(int)) - 1
        result += [{"part": "curve", **common, "gradients": gaps[k][0], "gap": gaps[k][1]} for k in places]
    return result


def _gaps(problem: Problem, curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Relative gaps: the loss above its least value, over what it was at the start."""
    first = curve[0][1] - problem.least
    return [(count, max(loss - problem.least, 0.0) / first) for count, loss in curve]


def detail_rows(name: str, limit: int, seed: int, rows: int) -> list[Row]:
    """Algorithm 2 with its details switched off one by one."""
    result = []
    for variant, switch in VARIANTS.items():
        problem = make_problem(name, seed, rows)
        outcome = descend(problem, replace(SETTINGS[name][PAPER], **switch), limit)
        gap = _gaps(problem, outcome.curve)[-1][1]
        row = {"part": "detail", "problem": name, "variant": variant, "seed": seed, "gap": gap}
        result.append({**row, "diverged": outcome.diverged, "negative": outcome.negative})
    return result


def epsilon_rows(name: str, limit: int, seed: int, rows: int, epsilons: tuple[float, ...]) -> list[Row]:
    """Algorithm 2 by its floor ε."""
    result = []
    for epsilon in epsilons:
        problem = make_problem(name, seed, rows)
        outcome = descend(problem, replace(SETTINGS[name][PAPER], epsilon=epsilon), limit)
        row = {"part": "epsilon", "problem": name, "epsilon": epsilon, "seed": seed}
        result.append({**row, "gap": _gaps(problem, outcome.curve)[-1][1], "diverged": outcome.diverged})
    return result


def minibatch_rows(method: str, seed: int, rows: int, limit: int) -> list[Row]:
    """The network with minibatches of 64, the learning rate falling to zero; loss on all data."""
    problem = make_problem("network", seed, rows)
    optimizer = MINIBATCH[method](problem.params)
    flat = Flat(problem)
    group, rng = optimizer.param_groups[0], np.random.default_rng(seed)
    base, shown = group["lr"], group["reuse"] if group.get("gradients") == "reuse" else 1
    index, step, result = torch.zeros(0, dtype=torch.int64), 0, []
    marks = list(np.linspace(limit / 8, limit, 8))
    while len(flat.curve) < limit:
        if step % shown == 0:
            index = torch.from_numpy(rng.integers(0, rows, BATCH))
        group["lr"] = base * (1 - len(flat.curve) / limit)
        optimizer.step(partial(flat.evaluate, index))  # type: ignore[arg-type]
        step += 1
        if len(flat.curve) >= marks[0]:
            marks.pop(0)
            with torch.no_grad():
                loss = float(problem.loss(None))
            common = {"part": "minibatch", "problem": "network", "method": method, "seed": seed}
            result.append({**common, "gradients": len(flat.curve), "loss": loss, "last": not marks})
            marks = marks or [np.inf]
    return result
