"""The figure: spectra, angles and iterations."""

from __future__ import annotations

from typing import Any

from swallowtail.experiments.common import plots, select
from swallowtail.experiments.common.rows import Row
from swallowtail.experiments.hessians.runs import ALL_DIRECTIONS, SHORT


def plot(rows: list[Row]) -> Any:
    """Spectra, true and ours; angles and CG iterations, by case."""
    cases = list(dict.fromkeys((r["problem"], r["curvature"]) for r in select.where(rows, part="fit")))
    figure, axes = plots.figure(3, 4.4)
    for index, (problem, curvature) in enumerate(cases):
        seed = select.kinds(rows, "seed")[0]
        found = select.where(rows, part="spectrum", problem=problem, curvature=curvature, seed=seed)
        x = [row["index"] for row in found]
        label = f"{problem}, {SHORT[curvature]}"
        plots.line(axes[0], index, x, [max(r["true"], 1e-12) for r in found], label, marker="", alpha=0.6)
        plots.line(axes[0], index, x, [max(r["ours"], 1e-12) for r in found], linestyle="", markersize=4)
    axes[0].set(
        xscale="log",
        yscale="log",
        xlabel="index",
        ylabel="eigenvalue",
        title="true spectra (—) and D (marks)",
    )
    axes[0].set_ylim(bottom=1e-8)
    plots.legend_below(axes[0], 1)
    most = max(select.kinds(rows, "products", part="fit", method="ours"))
    for axis, column, title in (
        (axes[1], "angle", f"angle, degrees; {most} products"),
        (axes[2], "iterations", "CG iterations"),
    ):
        names, lengths = [], []
        chosen = ["none", "diagonal", "c·I + low rank", "ours", ALL_DIRECTIONS]
        for problem, curvature in cases[:3]:
            for method in chosen if column == "iterations" else chosen[2:]:
                found = select.where(rows, part="fit", problem=problem, curvature=curvature, method=method)
                found = [r for r in found if r["products"] == most or method in chosen[:2]]
                names.append(f"{method} ({problem}, {SHORT[curvature]})")
                lengths.append(select.mean(found, column))
        plots.bars(axis, names, lengths, "{:.1f}" if column == "angle" else "{:.0f}", len(cases[:3]))
        axis.set(title=title)
    grid = axes[0].get_gridspec()
    assert grid is not None  # they come from subplots
    grid.set_height_ratios([1.0, 1.0, 1.6])
    figure.set_size_inches(plots.WIDTH, 16)
    return figure
