"""The figure: loss gaps against gradients."""

from __future__ import annotations

from typing import Any

from swallowtail.experiments.algorithm2.runs import GOALS, PAPER
from swallowtail.experiments.common import plots, select
from swallowtail.experiments.common.rows import Row


def plot(rows: list[Row]) -> Any:
    """Gap against gradients, one panel per problem; then minibatches."""
    problems = select.kinds(rows, "problem", part="goal")
    figure, axes = plots.figure(len(problems) + 1, 4.3)
    methods = select.kinds(rows, "method", part="goal")
    for axis, problem in zip(axes, problems, strict=False):
        seed = select.kinds(rows, "seed", part="curve", problem=problem)[0]
        for index, method in enumerate(methods):
            found = select.where(rows, part="curve", problem=problem, method=method, seed=seed)
            x, y = [r["gradients"] for r in found], [max(r["gap"], 1e-16) for r in found]
            plots.line(axis, index, x, y, method, marker="", linestyle="--" if method == PAPER else "-")
        axis.axhline(GOALS[problem], color="#777777", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log", ylabel="relative gap", title=problem)
        axis.set_ylim(bottom=max(1e-12, axis.get_ylim()[0]))
    axes[-2].set_xlabel("gradients")
    plots.legend_below(axes[-2])
    for index, method in enumerate(select.kinds(rows, "method", part="minibatch")):
        found = select.where(rows, part="minibatch", method=method)
        x = sorted({r["gradients"] for r in found})
        y = [select.mean(found, "loss", gradients=k) for k in x]
        plots.line(axes[-1], index, x, y, method)
    axes[-1].set(
        xlabel="gradients of 64 digits", ylabel="loss on all", yscale="log", title="network, minibatches"
    )
    plots.legend_below(axes[-1])
    return figure
