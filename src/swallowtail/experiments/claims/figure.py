"""The figure: one panel per claim."""

from __future__ import annotations

from typing import Any

import numpy as np

from swallowtail.experiments.claims.haar import UNIFORM
from swallowtail.experiments.claims.rates import best_rate
from swallowtail.experiments.common import plots, select
from swallowtail.experiments.common.rows import Row


def plot(rows: list[Row]) -> Any:
    """One panel per claim."""
    figure, axes = plots.figure(5, 3.9)
    _plot_eigenspaces(axes[0], rows)
    trained = select.kinds(rows, "trained", part="probes")
    for index, tested in enumerate(("sphere", "cube", "region")):
        heights = [select.mean(rows, "angle", part="probes", trained=t, tested=tested) for t in trained]
        place = np.arange(len(trained)) + 0.27 * (index - 1)
        drawn = axes[1].bar(place, heights, 0.25, color=plots.PALETTE[index], label=tested)
        axes[1].bar_label(drawn, [f"{h:.0f}" for h in heights], fontsize=10)
    axes[1].set_xticks(range(len(trained)), trained)
    axes[1].set(xlabel="trained on", ylabel="angle, degrees", title="probes; colours: what it is tested on")
    plots.legend_below(axes[1], 3)
    for index, factor in enumerate(select.kinds(rows, "factor", part="rates")):
        found = select.where(rows, part="rates", factor=factor, rate=best_rate(rows, factor))
        epochs = sorted({row["epoch"] for row in found})
        angles = [select.mean(found, "angle", epoch=epoch) for epoch in epochs]
        plots.line(axes[2], index, epochs, angles, f"{factor:g}", markevery=max(1, len(epochs) // 8))
    axes[2].set(
        xscale="log", xlabel="epochs", ylabel="angle, degrees", title="D's rate over Q's, each at its best α"
    )
    plots.legend_below(axes[2])
    cases = select.kinds(rows, "n_large", part="inverse")
    names, lengths = [], []
    for n_large in cases:
        for method in select.kinds(rows, "method", part="inverse"):
            names.append(f"{method}, n_μ = {n_large}".replace(" of the inverse", ""))
            lengths.append(select.mean(rows, "angle", part="inverse", method=method, n_large=n_large))
    plots.bars(axes[3], names, lengths, "{:.1f}", len(cases))
    axes[3].set(xlabel="angle to H⁻¹, degrees", title="ways to the inverse")
    fourth = select.where(rows, part="haar", statistic="fourth_moment")
    deep = [row for row in fourth if row["depth"] != UNIFORM]
    plots.line(axes[4], 0, [r["depth"] for r in deep], [r["value"] for r in deep], "random butterflies")
    axes[4].axhline(fourth[0]["haar"], color=plots.PALETTE[1], linestyle="--", label="uniform, 3n/(n + 2)")
    axes[4].set_xticks([r["depth"] for r in deep])
    axes[4].set(xlabel="depth", ylabel="n² · mean of Q⁴", title="random products and uniform rotations")
    plots.legend_below(axes[4])
    return figure


def _plot_eigenspaces(axes: Any, rows: list[Row]) -> None:
    for index, method in enumerate(select.kinds(rows, "method", part="eigenspaces")):
        for kind, style in (("equal", ":"), ("one", "-")):
            found = select.where(rows, part="eigenspaces", kind=kind, method=method)
            m = sorted({row["dimension"] for row in found})
            y = [select.mean(found, "angle", dimension=k) for k in m]
            plots.line(axes, index, m, y, method if kind == "one" else None, linestyle=style)
    axes.set(xlabel="dimension: of one eigenspace (—), of each (···)", ylabel="angle, degrees")
    axes.set_title("eigenspaces; same mean and variance")
    plots.legend_below(axes)
