"""Plots and the section of docs/benchmarks.md from the committed rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import RESULTS, Row, read_rows
from benchmarks.language.methods import METHODS

BEGIN, END = "<!-- language -->", "<!-- end language -->"
Curve = dict[int, list[float]]  # losses of all seeds by step


def report() -> None:
    """Everything that is made from committed rows."""
    rows = [row for device in ("cpu", "cuda") for row in read_rows(f"language-{device}")]
    for size in sizes(rows):
        plot(rows, size)
    replace_between(BENCHMARKS, BEGIN, END, page(rows))


def sizes(rows: list[Row]) -> list[str]:
    """The models with losses."""
    return list(dict.fromkeys(r["size"] for r in rows if r["part"] == "loss"))


def best_rate(rows: list[Row], size: str, method: str) -> str:
    """The rate with the least last loss for the seed that all rates were tried with."""
    mine = [r for r in rows if (r["part"], r["size"], r["method"]) == ("loss", size, method)]
    first = min(int(r["seed"]) for r in mine)
    last = {r["rate"]: float(r["loss"]) for r in mine if int(r["seed"]) == first}  # later rows win
    return min(last, key=lambda rate: last[rate])


def curve(rows: list[Row], size: str, method: str) -> Curve:
    """At the best rate."""
    rate, found = best_rate(rows, size, method), Curve()
    for r in rows:
        if (r["part"], r["size"], r["method"], r["rate"]) == ("loss", size, method, rate):
            found.setdefault(int(r["step"]), []).append(float(r["loss"]))
    return found


def milliseconds(rows: list[Row], size: str) -> dict[str, float]:
    """Of a whole step."""
    return {r["method"]: float(r["ms"]) for r in rows if (r["part"], r["size"]) == ("step", size)}


def plot(rows: list[Row], size: str) -> None:
    """Loss against steps and against seconds; medians over seeds."""
    ms = milliseconds(rows, size)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for method in METHODS:
        points = curve(rows, size, method)
        steps, losses = np.array(list(points)), [np.median(values) for values in points.values()]
        left.plot(steps, losses, marker=".", label=method)
        if method in ms:
            right.plot(steps * ms[method] / 1e3, losses, marker=".")
    left.set(xlabel="steps", ylabel="validation loss, nats per byte", title=f"{size} parameters")
    right.set(xlabel="seconds: steps × time of a step")
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(RESULTS / f"language-{size.split()[0]}.png", dpi=130)


def page(rows: list[Row]) -> Iterator[str]:
    yield from (
        "## A language model", "",
        "Made by `python -m benchmarks.language`: a byte-level transformer on Python's own library sources, validation "
        "loss in nats per byte. Every method runs with every rate of a grid of factors of two for one seed; the best "
        "rate runs with the other seeds. Rates warm up and fall linearly to zero. Weight decay is 0, gradients are "
        "clipped at norm 1. All else is each method's default. Muon takes the matrices inside the blocks, AdamW at "
        "0.15 of its rate the rest.", "",
    )  # fmt: skip
    for size in sizes(rows):
        yield from _losses(rows, size)
    yield from _steps(rows)
    yield from _development(rows)


def _losses(rows: list[Row], size: str) -> Iterator[str]:
    ms = milliseconds(rows, size)
    points = {method: curve(rows, size, method) for method in METHODS}
    last = max(max(each) for each in points.values())
    seeds = min(len(each[last]) for each in points.values())
    final = {method: float(np.median(each[last])) for method, each in points.items()}
    winner, adam = min(final, key=lambda method: final[method]), final["AdamW"]
    device = next(r["hardware"] for r in rows if r["size"] == size)
    in_time = _equal_time(points, ms) if len(ms) == len(METHODS) else ""
    yield from (
        f"**{size} parameters, {last} steps** ({device}), medians over {seeds} seeds. Per step **{winner}** wins. "
        f"{in_time}{adam:.3f} is AdamW's last loss; when a method comes to it is taken from a straight line between "
        "points. Times on a CPU are processor time of one thread.", "",
        f"| | best rate | loss at {last // 4} | at {last // 2} | at {last} | steps to {adam:.3f} | ms per step | "
        f"seconds to {adam:.3f} |",
        "|---" * 8 + "|",
    )  # fmt: skip
    for method, each in points.items():
        steps, losses = np.array(sorted(each)), np.array([np.median(each[k]) for k in sorted(each)])
        near = [losses[np.abs(steps - last * share).argmin()] for share in (0.25, 0.5, 1)]
        reached = _reached(steps, losses, adam)
        cells = [f"{float(best_rate(rows, size, method)):g}", *(f"{x:.3f}" for x in near), f"{reached:.0f}"]
        timed = [f"{ms[method]:.3g}", f"{reached * ms[method] / 1e3:.1f}"] if method in ms else ["–", "–"]
        yield f"| {method} | " + " | ".join(cells + timed) + " |"
    yield from ("", f"![](../benchmarks/results/language-{size.split()[0]}.png)", "")


def _equal_time(points: dict[str, Curve], ms: dict[str, float]) -> str:
    """Who is ahead when the first method has ended."""
    seconds = min(max(each) * ms[method] / 1e3 for method, each in points.items())
    loss = {
        method: float(
            np.interp(seconds * 1e3 / ms[method], list(each), [np.median(values) for values in each.values()])
        )
        for method, each in points.items()
    }
    ahead = sorted(loss, key=lambda method: loss[method])
    listed = ", ".join(f"{method} {loss[method]:.3f}" for method in ahead)
    return f"After {seconds:.1f} s of each **{ahead[0]}** does: {listed}. "


def _reached(steps: np.ndarray, losses: np.ndarray, goal: float) -> float:
    """When a falling curve comes to a goal; infinite if it does not."""
    below = np.flatnonzero(losses <= goal)
    if not len(below):
        return float("inf")
    k = below[0]
    if k == 0:
        return float(steps[0])
    return float(np.interp(goal, [losses[k], losses[k - 1]], [steps[k], steps[k - 1]]))


def _steps(rows: list[Row]) -> Iterator[str]:
    """Times of models whose losses were not measured."""
    timed = [s for s in dict.fromkeys(r["size"] for r in rows if r["part"] == "step") if s not in sizes(rows)]
    if not timed:
        return
    yield from (
        "**A whole training step on an H200**, in milliseconds, launched eagerly, batches of 32 × 256 bytes in "
        "bfloat16. There was no time on the device for losses of these sizes, so nothing is said about who wins there.",
        "",
        "| | " + " | ".join(timed) + " |", "|---" * (1 + len(timed)) + "|",
    )  # fmt: skip
    for method in METHODS:
        yield f"| {method} | " + " | ".join(f"{milliseconds(rows, s)[method]:.1f}" for s in timed) + " |"
    yield ""


def _development(rows: list[Row]) -> Iterator[str]:
    """Runs from which the groups were chosen."""
    mine = [r for r in rows if r["part"] == "development"]
    if not mine:
        return
    yield from (
        "**Development runs on an H200**: 10 M parameters (width 512, three layers), 400 steps, one seed. They chose "
        "the groups, so they are no test of them. Rounds of groups ran as plain PyTorch operations, with a first fit "
        'at the first step; "GivensAdam" is the kernels before its moments began anew in the first basis. Rates are as '
        "they were applied: matrices in groups now move by twice the rate.", "",
        "| | rate | loss |", "|---|---|---|",
    )  # fmt: skip
    for r in mine:
        yield f"| {r['method']} | {float(r['rate']):g} | {float(r['loss']):.3f} |"
    yield ""
