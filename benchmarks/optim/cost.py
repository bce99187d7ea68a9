"""What steps cost on a CPU: GivensAdam's against torch's Adam, an evaluation of GivensLBFGS against SciPy's.

    python -m benchmarks.optim.cost      # half a minute

Methods take turns of ten steps within one process, one thread, and medians over the turns are rows. Times are those of
the processor, since others may share the machine. ``step`` is the optimiser's own part of a training step, ``whole``
the training step with its gradient.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize, rosen, rosen_der

from benchmarks.common.rows import Row, write_rows
from benchmarks.common.threads import one_thread
from benchmarks.optim.problems import DIGITS_TRAIN, Network
from benchmarks.optim.report import write_report
from benchmarks.optim.stochastic import BETAS, STOCHASTIC
from examples.language_model import LanguageModel, Size, library_sources, loss
from swallowtail.optim import GivensAdam, minimize_givens

TRANSFORMER = Size(width=96, inner=256, layers=1, heads=4, context=64, batch=16)
METHODS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam, foreach": lambda p: torch.optim.Adam(p, 1e-2, betas=BETAS, foreach=True),
    "GivensAdam": lambda p: GivensAdam(p, 1e-2),
}
TURN = 10  # steps: two fits of the bases
SOLVERS: dict[str, tuple[Any, dict[str, float]]] = {
    "scipy L-BFGS-B(10)": ("L-BFGS-B", {"gtol": 1e-6, "ftol": 0.0}),
    "GivensLBFGS": (minimize_givens, {"gtol": 1e-6}),
}
CURVATURES = np.logspace(0, 2, 100)
FUNCTIONS = {
    "quadratic 100": (lambda x: (float(x @ (CURVATURES * x)) / 2, CURVATURES * x), np.ones(100)),
    "Rosenbrock 100": (lambda x: (float(rosen(x)), rosen_der(x)), np.tile([-1.2, 1.0], 50)),
}


def _network(widths: tuple[int, ...]) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
    problem, rng = Network(widths, 1), np.random.default_rng(0)
    return problem.params, lambda: problem.loss(torch.from_numpy(rng.integers(0, DIGITS_TRAIN, 64)))


def _pixels() -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
    """The usual first network, on 28 × 28 pixels. Random ones: a step takes as long whatever they are."""
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    rows, labels = torch.rand(64, 784, generator=generator), torch.randint(0, 10, (64,), generator=generator)
    return list(model.parameters()), lambda: torch.nn.functional.cross_entropy(model(rows), labels)


def _transformer() -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
    model, rows = LanguageModel(TRANSFORMER), library_sources().batches(TRANSFORMER, "cpu")
    return list(model.parameters()), lambda: loss(model, next(rows))


def training(name: str, make: Callable[[], Any], turns: int) -> list[Row]:
    """Microseconds of training steps with each method."""
    made = {label: make() for label in METHODS}
    optimizers = {label: METHODS[label](params) for label, (params, _) in made.items()}
    found: dict[str, list[tuple[float, float]]] = {label: [] for label in METHODS}
    for _ in range(2 + turns):
        for label, (_, value) in made.items():
            begin, steps = time.process_time(), 0.0
            for _ in range(TURN):
                optimizers[label].zero_grad()
                value().backward()
                ready = time.process_time()
                optimizers[label].step()
                steps += time.process_time() - ready
            found[label].append((time.process_time() - begin, steps))
    rows = []
    for label, times in found.items():
        whole, step = 1e6 / TURN * np.median(times[2:], axis=0)  # what is compiled is so after two turns
        rows.append({"part": "step", "problem": name, "method": label, "whole": whole, "step": step})
    return rows


def evaluations(name: str, turns: int = 9) -> list[Row]:
    """Microseconds that a solver takes per evaluation, less the function's own."""
    fun, start = FUNCTIONS[name]
    found: dict[str, list[float]] = {label: [] for label in SOLVERS}
    for _ in range(1 + turns):
        for label, (method, options) in SOLVERS.items():
            marks = [time.process_time()]

            def timed(x: np.ndarray, marks: list[float] = marks) -> tuple[float, np.ndarray]:
                marks.append(time.process_time())
                value = fun(x)
                marks.append(time.process_time())
                return value

            minimize(timed, start, jac=True, method=method, options=options)
            marks.append(time.process_time())
            own = sum(b - a for a, b in list(pairwise(marks))[::2])
            found[label].append(1e6 * own / (len(marks) // 2 - 1))
    return [
        {"part": "evaluation", "problem": name, "method": label, "step": np.median(times[1:])}
        for label, times in found.items()
    ]


def main() -> None:
    rows = []
    with one_thread():  # a thread that waits for work counts as processor time, too
        for name, widths in STOCHASTIC.items():
            rows += training(name, lambda widths=widths: _network(widths), 20)
        rows += training("MLP 784-256-10", _pixels, 20)
        rows += training("transformer, 0.2 M", _transformer, 8)
        for name in FUNCTIONS:
            rows += evaluations(name)
    print("rows:", write_rows("optim-cost", rows, "python -m benchmarks.optim.cost"))
    write_report()


if __name__ == "__main__":
    main()
