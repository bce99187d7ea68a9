"""The optimisers against their rivals and their own ablations, medians over seeds not used in development.

    python -m benchmarks.optim [--parts lbfgs,newton,minibatch,adam] [--seeds 5] [--plots docs/images]

Every row is one run: problem, method, seed, and what it took. Learning rates of the stochastic methods (``RATES``)
were chosen from ``GRID`` on development seed 1 by ``--tune``, those of heavy ball and GivensNewton on seeds 1 to 5 by
hand; all other settings of GivensAdam and GivensLBFGS are their defaults.
Curves of loss against gradients and against seconds are rows too (part "curve").
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from tqdm import tqdm

from benchmarks.optim_problems import SOAP, Network, breast_cancer, quadratic, rosenbrock, train
from benchmarks.timing import write_rows
from swallowtail.optim import GivensAdam, GivensNewton, minimize_givens

FIRST_SEED = 500  # development used 1 … 5
Row = dict[str, Any]

# Deterministic problems: how to make one, evaluations allowed, relative gap to reach, whether f* is 0.
DETERMINISTIC: dict[str, tuple[Callable[[int], Any], int, float, bool]] = {
    "MLP 64-32-10": (lambda s: _network((64, 32, 10), s), 400, 0.01, True),
    "MLP 64-64-10": (lambda s: _network((64, 64, 10), s), 300, 0.015, True),
    "AE 64-32-8-32-64": (lambda s: _network((64, 32, 8, 32, 64), s), 400, 0.1, True),
    "Haar quadratic 128": (lambda s: quadratic(128, "haar", s), 1200, 1e-6, True),
    "Rosenbrock 96": (lambda s: rosenbrock(96, s), 2500, 1e-6, True),
    "logistic breast-cancer": (breast_cancer, 400, 1e-6, False),
}
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
    "GivensAdam, butterfly": lambda p, lr: GivensAdam(p, lr, wiring="butterfly"),
    "GivensAdam, covariance": lambda p, lr: GivensAdam(p, lr, statistics="covariance"),
    "GivensAdam, random Q": lambda p, lr: GivensAdam(p, lr, wiring="random"),
}
GRID = (0.003, 0.01, 0.03, 0.1)
RATES: dict[str, dict[str, float]] = {  # ablations take GivensAdam's
    "MLP 64-64-10": {"Adam": 0.03, "SOAP": 0.03, "GivensAdam": 0.03},
    "AE 64-32-8-32-64": {"Adam": 0.01, "SOAP": 0.01, "GivensAdam": 0.01},
    "AE 64-128-16-128-64": {"Adam": 0.01, "SOAP": 0.01, "GivensAdam": 0.01},
}
PAPER = {"lr": 1.0, "rate": (0.3, 0.3), "epsilon": 0.01, "normalized_step": None}
PAST = {"lr": 0.8, "criterion": "psgd", "replay": 64, "sweeps": 4, "normalized_step": 0.1, "momentum": 0.7}
NEWTON: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "heavy ball": lambda p: torch.optim.SGD(p, 1.3, momentum=0.9),
    "Algorithm 2": lambda p: GivensNewton(p, **PAPER),
    "Algorithm 2, Q = I": lambda p: GivensNewton(p, **{**PAPER, "rate": (0.0, 0.3)}),
    "psgd, replay, momentum": lambda p: GivensNewton(p, **PAST),
    "psgd, replay, momentum, Q = I": lambda p: GivensNewton(p, **PAST, rate=(0.0, 0.1)),
}
MINIBATCH_PAPER = {"lr": 1.0, "rate": (0.03, 0.3), "epsilon": 0.3, "normalized_step": None}
MINIBATCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 1.0),
    "GivensNewton, two gradients": lambda p: GivensNewton(p, **MINIBATCH_PAPER, gradients="twice"),
    "GivensNewton, reuse × 4": lambda p: GivensNewton(p, **MINIBATCH_PAPER, gradients="reuse", reuse=4),
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
                yield from _curve("lbfgs", name, label, seed, watch.curve)


def _curve(
    part: str, problem: str, method: str, seed: int, points: list[tuple[int, float, float]]
) -> Iterator[Row]:
    for count, loss, seconds in points[:: max(1, len(points) // 40)]:
        yield {
            "part": f"curve {part}", "problem": problem, "method": method, "seed": seed, "evaluations": count,
            "loss": loss, "seconds": seconds,
        }  # fmt: skip


def adam(seed: int) -> Iterator[Row]:
    """Training loss after 1000 minibatches of 64."""
    for name, widths in STOCHASTIC.items():
        for label, make in METHODS.items():
            problem = Network(widths, seed)
            begin = time.process_time()
            curve = train(problem, make(problem.params, RATES[name][label.split(",")[0]]), 1000, seed)
            seconds = time.process_time() - begin
            yield {
                "part": "adam", "problem": name, "method": label, "seed": seed, "evaluations": 1000,
                "loss": curve[-1][1], "seconds": seconds,
            }  # fmt: skip
            if seed == FIRST_SEED:
                yield from _curve("adam", name, label, seed, [(k, f, seconds * k / 1000) for k, f in curve])


def tune(seed: int = 1) -> None:
    """Print the loss at every rate of the grid, to choose ``RATES`` from."""
    for name, widths in STOCHASTIC.items():
        for label in ("Adam", "SOAP", "GivensAdam"):
            losses = {}
            for lr in GRID:
                problem = Network(widths, seed)
                losses[lr] = train(problem, METHODS[label](problem.params, lr), 1000, seed, 1000)[-1][1]
            best = min(losses, key=lambda lr: losses[lr])
            print(
                f"{name:24s} {label:12s} best {best:g}",
                {k: round(v, 4) for k, v in losses.items()},
                flush=True,
            )


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
            yield from _curve("newton", "paper's H, n = 64", label, seed, watch.curve)


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


PARTS = {"lbfgs": lbfgs, "newton": newton, "minibatch": minibatch, "adam": adam}


def median(rows: list[Row], part: str, problem: str, method: str, what: str) -> float:
    """Over seeds; a run that did not arrive counts as infinite."""
    found = [r[what] for r in rows if (r["part"], r["problem"], r["method"]) == (part, problem, method)]
    return float(np.median([np.inf if v == "" else float(v) for v in found])) if found else np.nan


def bars(rows: list[Row]) -> Iterator[tuple[str, float, str, float]]:
    """Name, value, direction, bar."""
    parts = {r["part"] for r in rows}
    if "lbfgs" in parts:
        for name, bar in zip(DETERMINISTIC, (0.80, 0.80, 0.85, 1.10, 1.10, 1.10), strict=True):
            ours, plain = (median(rows, "lbfgs", name, m, "evaluations") for m in ("GivensLBFGS", "γI"))
            yield f"GivensLBFGS / γI, evaluations, {name}", ours / plain, "≤", bar
    if "adam" in parts:
        for name, bar in zip(STOCHASTIC, (0.70, 0.60, 0.60), strict=True):
            loss = {m: median(rows, "adam", name, m, "loss") for m in METHODS}
            gap = loss["Adam"] - loss["SOAP"]
            yield (
                f"GivensAdam, share of Adam–SOAP gap, {name}",
                (loss["Adam"] - loss["GivensAdam"]) / gap,
                "≥",
                bar,
            )
            yield (
                f"GivensAdam / random Q, loss, {name}",
                loss["GivensAdam"] / loss["GivensAdam, random Q"],
                "≤",
                1.0,
            )
    if "newton" in parts:
        count = {m: median(rows, "newton", "paper's H, n = 64", m, "evaluations") for m in NEWTON}
        past = count["psgd, replay, momentum"]
        yield "Algorithm 2, gradients to 1e-6", count["Algorithm 2"], "≤", 500
        yield "past the paper / its Q = I", past / count["psgd, replay, momentum, Q = I"], "≤", 1.0
        yield "past the paper / tuned heavy ball", past / count["heavy ball"], "≤", 1.0


def table(rows: list[Row]) -> None:
    """Medians, one line a problem and method."""
    keys = dict.fromkeys(
        (r["part"], r["problem"], r["method"]) for r in rows if not r["part"].startswith("curve")
    )
    for part, problem, method in keys:
        n, f, s = (median(rows, part, problem, method, k) for k in ("evaluations", "loss", "seconds"))
        print(f"{part:10s} {problem:24s} {method:32s} {n:8g} evaluations  loss {f:10.4g}  {s:7.2f} s")


def plot(rows: list[Row], folder: Path) -> None:
    """Loss against gradients and against seconds, one figure a problem."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    curves = [r for r in rows if r["part"].startswith("curve")]
    folder.mkdir(parents=True, exist_ok=True)
    for part, problem in dict.fromkeys((r["part"], r["problem"]) for r in curves):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
        for method in dict.fromkeys(
            r["method"] for r in curves if (r["part"], r["problem"]) == (part, problem)
        ):
            mine = [r for r in curves if (r["part"], r["problem"], r["method"]) == (part, problem, method)]
            for axis, what in zip(axes, ("evaluations", "seconds"), strict=True):
                axis.semilogy([r[what] for r in mine], [r["loss"] for r in mine], label=method)
        axes[0].set(xlabel="gradients", ylabel="loss", title=problem)
        axes[1].set(xlabel="seconds (CPU)")
        axes[0].legend(fontsize=7)
        figure.tight_layout()
        name = "".join(c if c.isalnum() else "-" for c in f"optim {part.split()[1]} {problem}")
        figure.savefig(folder / f"{name}.png", dpi=120)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plots", type=Path, default=Path(__file__).parent / "results" / "optim")
    parser.add_argument(
        "--first-seed", type=int, default=FIRST_SEED, help="for development; rows are not written"
    )
    parser.add_argument("--tune", action="store_true", help="print losses over the grid of rates, and end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.tune:
        tune()
        return
    names, rows = options.parts.split(","), []
    jobs = [
        (name, seed)
        for name in names
        for seed in range(options.first_seed, options.first_seed + options.seeds)
    ]
    for name, seed in tqdm(jobs, desc="optim", unit="seed"):
        rows += PARTS[name](seed)
    table(rows)
    if options.first_seed == FIRST_SEED:
        suffix = "" if set(names) == set(PARTS) else "-" + "-".join(names)
        command = "python -m benchmarks.optim" + (f" --parts {options.parts}" if suffix else "")
        print("rows:", write_rows(f"optim{suffix}", rows, command))
        plot(rows, options.plots)
    for name, value, sign, bar in bars(rows):
        met = value <= bar if sign == "≤" else value >= bar
        print(f"{'met   ' if met else 'MISSED'} {name:60s} {value:8.2f} {sign} {bar:g}")


if __name__ == "__main__":
    main()
