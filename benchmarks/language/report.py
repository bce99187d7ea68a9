"""Plots and the section of docs/benchmarks.md from the committed rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import RESULTS, Row, read_rows
from benchmarks.language.methods import METHODS
from benchmarks.language.training import EQUAL_STEPS, EQUAL_TIME

BEGIN, END = "<!-- language -->", "<!-- end language -->"
GAP_BAR = 0.85  # how much of the way from AdamW's loss to SOAP's at least, after equal steps
Curve = dict[int, list[float]]  # losses of all seeds by step


def report() -> None:
    """Everything that is made from committed rows."""
    rows = [row for device in ("cpu", "cuda") for row in read_rows(f"language-{device}")]
    for size in sizes(rows):
        plot(rows, size)
    replace_between(BENCHMARKS, BEGIN, END, page(rows))


def sizes(rows: list[Row]) -> list[str]:
    """The models with losses."""
    return list(dict.fromkeys(r["size"] for r in rows if r["part"] in (EQUAL_STEPS, EQUAL_TIME)))


def of(rows: list[Row], part: str, size: str) -> dict[str, list[Row]]:
    """By method; only methods with rows."""
    found = {m: [r for r in rows if (r["part"], r["size"], r["method"]) == (part, size, m)] for m in METHODS}
    return {method: mine for method, mine in found.items() if mine}


def alike(rows: list[Row], size: str) -> dict[str, list[Row]]:
    """Runs of equal steps by method. Of several numbers of steps, the one that most methods ran; the larger of two."""
    found = of(rows, EQUAL_STEPS, size)
    lengths = [{int(r["steps"]) for r in mine} for mine in found.values()]
    steps = max(set().union(*lengths), key=lambda k: (sum(k in each for each in lengths), k), default=0)
    kept = {method: [r for r in mine if int(r["steps"]) == steps] for method, mine in found.items()}
    return {method: mine for method, mine in kept.items() if mine}


def at_an_edge(mine: list[Row]) -> bool:
    """Whether several rates were tried, and the best one is the least or the largest."""
    first = min(int(r["seed"]) for r in mine)
    tried = {float(r["rate"]) for r in mine if int(r["seed"]) == first}
    return len(tried) > 1 and float(best_rate(mine)) in (min(tried), max(tried))


def best_rate(mine: list[Row]) -> str:
    """The rate with the least last loss for the seed that all rates were tried with."""
    first = min(int(r["seed"]) for r in mine)
    last = {r["rate"]: float(r["loss"]) for r in mine if int(r["seed"]) == first}  # later rows win
    return min(last, key=lambda rate: last[rate] if np.isfinite(last[rate]) else np.inf)


def curve(mine: list[Row]) -> Curve:
    """At the best rate."""
    rate, found = best_rate(mine), Curve()
    for r in mine:
        if r["rate"] == rate:
            found.setdefault(int(r["step"]), []).append(float(r["loss"]))
    return dict(sorted(found.items()))


def medians(points: Curve) -> list[float]:
    """Over seeds."""
    return [float(np.median(values)) for values in points.values()]


def milliseconds(rows: list[Row], size: str) -> dict[str, float]:
    """Of a whole step."""
    return {r["method"]: float(r["ms"]) for r in rows if (r["part"], r["size"]) == ("step", size)}


def plot(rows: list[Row], size: str) -> None:
    """Loss against steps and against seconds; medians over seeds. Runs of equal time are drawn against seconds."""
    ms, figure = milliseconds(rows, size), Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    equal, race = alike(rows, size), of(rows, EQUAL_TIME, size)
    for method in METHODS:
        colour = f"C{list(METHODS).index(method)}"
        if method in (equal or race):
            points = curve((equal or race)[method])
            left.plot(list(points), medians(points), marker=".", color=colour, label=method)
        if method in race:
            points, each = curve(race[method]), float(race[method][0]["ms"])
        elif method in equal and not race and method in ms:
            points, each = curve(equal[method]), ms[method]
        else:
            continue
        right.plot(np.array(list(points)) * each / 1e3, medians(points), marker=".", color=colour)
    left.set(xlabel="steps", ylabel="validation loss, nats per byte", title=f"{size} parameters")
    right.set(xlabel="seconds: steps × time of a step", title="runs of equal time" if race else "")
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(RESULTS / f"language-{size.split()[0]}.png", dpi=130)


def page(rows: list[Row]) -> Iterator[str]:
    yield from (
        "## A language model", "",
        "Made by `python -m benchmarks.language`: a byte-level transformer on Python's own library sources, validation "
        "loss in nats per byte. With one seed, every method tries the rates of a grid in factors of two. The best rate "
        "then runs with the other seeds. Rates warm up and fall linearly to zero. Weight decay is 0, gradients are "
        "clipped at norm 1. All else is each method's default. Muon takes the matrices inside the blocks; AdamW takes "
        "the rest, at 0.15 of Muon's rate.", "",
    )  # fmt: skip
    for size in sizes(rows):
        if of(rows, EQUAL_TIME, size):
            yield from _race(rows, size)
        if alike(rows, size):
            yield from _losses(rows, size)
        yield from (f"![](../benchmarks/results/language-{size.split()[0]}.png)", "")
    yield from _steps(rows)
    yield from _development(rows)


def _race(rows: list[Row], size: str) -> Iterator[str]:
    """Equal time for all."""
    race = of(rows, EQUAL_TIME, size)
    final = {method: list(curve(mine).values())[-1] for method, mine in race.items()}
    ranked = sorted(final, key=lambda method: float(np.median(final[method])))
    seconds = [int(mine[0]["steps"]) * float(mine[0]["ms"]) / 1e3 for mine in race.values()]
    ahead = f"**{ranked[0]}** leads"
    if len(ranked) > 1:
        gap = float(np.median(final[ranked[1]]) - np.median(final[ranked[0]]))
        ahead += f", by {gap:.3f} nats over {ranked[1]}"
    device = next(r["hardware"] for mine in race.values() for r in mine)
    yield from (
        f"**{size} parameters, {np.median(seconds):.1f} seconds for each** ({device}), medians over "
        f"{min(map(len, final.values()))} seeds. {ahead}. A method takes as many steps as fit into that "
        "time, and its schedule has that length.", "",
        "| | best rate | ms per step | steps | loss | least and largest |", "|---" * 6 + "|",
    )  # fmt: skip
    for method in ranked:
        mine, losses = race[method], final[method]
        cells = [f"{float(best_rate(mine)):g}", f"{float(mine[0]['ms']):.3g}", mine[0]["steps"]]
        yield (
            f"| {method} | "
            + " | ".join(cells)
            + (f" | {np.median(losses):.3f} | {min(losses):.3f}, {max(losses):.3f} |")
        )
    yield ""


def _losses(rows: list[Row], size: str) -> Iterator[str]:
    """Equal steps for all."""
    ms, equal = milliseconds(rows, size), alike(rows, size)
    points = {method: curve(mine) for method, mine in equal.items()}
    last = max(max(each) for each in points.values())
    seeds = sorted({len(each[last]) for each in points.values()})
    over = (
        "one seed"
        if seeds == [1]
        else f"medians over {' to '.join(map(str, seeds[:: len(seeds) - 1 or 1]))} seeds"
    )
    final = {method: float(np.median(each[last])) for method, each in points.items()}
    winner = min(final, key=lambda method: final[method])
    adam = final.get("AdamW", max(final.values()))
    device = next(r["hardware"] for mine in equal.values() for r in mine)
    raced, timed = of(rows, EQUAL_TIME, size), len(ms) == len(points)
    given = [method for method, mine in equal.items() if len({r["rate"] for r in mine}) == 1]
    edges = [method for method, mine in equal.items() if at_an_edge(mine)]
    untuned = f" Best at the edge of the rates that were tried: {', '.join(edges)}." if edges else ""
    untuned += f" At one rate only: {', '.join(given)}." if given else ""
    yield from (
        f"**{size} parameters, equal steps: {last}** ({device}), {over}. **{winner}** leads. "
        f"{_equal_time(points, ms) if timed and not raced else ''}AdamW ends at {adam:.3f}; when a method gets there "
        "is interpolated between the points."
        f"{untuned}{' Times on a CPU are processor time of one thread.' if size == '0.2 M' else ''}", "",
        f"| | best rate | loss at {last // 4} | at {last // 2} | at {last} | steps to {adam:.3f} | ms per step | "
        f"seconds to {adam:.3f} |",
        "|---" * 8 + "|",
    )  # fmt: skip
    for method, each in points.items():
        steps, losses = np.array(list(each)), np.array(medians(each))
        near = [losses[np.abs(steps - last * share).argmin()] for share in (0.25, 0.5, 1)]
        reached = _reached(steps, losses, adam)
        cells = [f"{float(best_rate(equal[method])):g}", *(f"{x:.3f}" for x in near), f"{reached:.0f}"]
        shown = [f"{ms[method]:.3g}", f"{reached * ms[method] / 1e3:.1f}"] if method in ms else ["–", "–"]
        yield f"| {method} | " + " | ".join(cells + shown) + " |"
    yield ""
    if {"AdamW", "SOAP", "GivensAdam"} <= set(final):
        yield from (_gap(final, last), "")


def _gap(final: dict[str, float], last: int) -> str:
    """How far GivensAdam comes from AdamW's loss to SOAP's."""
    if final["SOAP"] >= final["AdamW"]:
        return f"After {last} steps SOAP is not below AdamW, so there is no gap to close."
    share = (final["AdamW"] - final["GivensAdam"]) / (final["AdamW"] - final["SOAP"])
    met = "met" if share >= GAP_BAR else "not met"
    return (
        f"Share of the gap from AdamW to SOAP per step, after {last}: {share:.2f} (asked ≥ {GAP_BAR}: {met})."
    )


def _equal_time(points: dict[str, Curve], ms: dict[str, float]) -> str:
    """Who is ahead when the first method has ended."""
    seconds = min(max(each) * ms[method] / 1e3 for method, each in points.items())
    loss = {
        method: float(np.interp(seconds * 1e3 / ms[method], list(each), medians(each)))
        for method, each in points.items()
    }
    ahead = sorted(loss, key=lambda method: loss[method])
    listed = ", ".join(f"{method} {loss[method]:.3f}" for method in ahead)
    return f"After {seconds:.1f} s for each: {listed}. "


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
    recorded = any(r.get("launched") == "graph" for r in rows if r["part"] == "step" and r["size"] in timed)
    how = "gradients recorded as a CUDA graph" if recorded else "launched eagerly"
    yield from (
        f"**A whole training step on an H200**, in milliseconds, {how}, batches of 32 × 256 bytes in "
        "bfloat16. There was no time on the device for losses of these sizes, so nothing is said about who wins there.",
        "",
        "| | " + " | ".join(timed) + " |", "|---" * (1 + len(timed)) + "|",
    )  # fmt: skip
    for method in METHODS:
        yield (
            f"| {method} | "
            + " | ".join(f"{milliseconds(rows, s).get(method, np.nan):.1f}" for s in timed)
            + " |"
        )
    yield ""


def _development(rows: list[Row]) -> Iterator[str]:
    """Runs from which the groups were chosen."""
    mine = [r for r in rows if r["part"] == "development"]
    if not mine:
        return
    yield from (
        "**Development runs on an H200**: 10 M parameters (width 512, three layers), 400 steps, one seed. They chose "
        "the groups, so they are no test of them. Rounds of groups ran as plain PyTorch operations, with a first fit "
        'at the first step. "GivensAdam" ran on the kernels, before its moments began anew in the first basis. The '
        "rates are those that were applied; today matrices in groups move by twice the rate you give.", "",
        "| | rate | loss |", "|---|---|---|",
    )  # fmt: skip
    for r in mine:
        yield f"| {r['method']} | {float(r['rate']):g} | {float(r['loss']):.3f} |"
    yield ""
