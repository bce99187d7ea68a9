"""How the figures look: one colour a method everywhere, text that is read on a phone, a band for the spread."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swallowtail.experiments.common.run import Row

# Okabe and Ito's colours, told apart by colour-blind readers too; black is the paper's method.
COLOURS = {
    "black": "#000000",
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "grey": "#777777",
}
# What every figure is drawn with: 6.4 inches become about 360 points on a phone, so 13 becomes 10.
STYLE: Any = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2,
    "legend.frameon": False,
    "legend.fontsize": 11.5,
    "figure.dpi": 100,
}
WIDTH = 6.4  # inches
DPI = 150


def figure(n_panels: int = 1, height: float = 4.6) -> tuple[Figure, list[Axes]]:
    """Panels below one another, ``height`` inches each."""
    drawing = Figure(figsize=(WIDTH, height * n_panels), layout="constrained")
    return drawing, list(np.atleast_1d(drawing.subplots(n_panels, 1)))


def spread(axes: Axes, rows: Iterable[Row], x: str, y: str, **style: Any) -> None:
    """A line through the mean of ``y`` at each ``x``, in a band from the least to the greatest."""
    groups: dict[float, list[float]] = {}
    for row in rows:
        groups.setdefault(row[x], []).append(row[y])
    if not groups:
        return
    at = sorted(groups)
    values = [groups[place] for place in at]
    (line,) = axes.plot(at, [float(np.mean(v)) for v in values], **style)
    if max(len(v) for v in values) > 1:
        low, high = [min(v) for v in values], [max(v) for v in values]
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def legend_below(axes: Axes, columns: int = 2) -> None:
    """A legend under the axes, where it covers no line."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.15), ncols=columns)


def picture(drawing: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def away_from(paper: float, ours: float, bar: float) -> str:
    """For the table: "+1.2° from the paper, within ±2°"."""
    verdict = f"within ±{bar:g}°" if abs(ours - paper) <= bar else f"beyond ±{bar:g}°"
    if verdict.startswith("beyond"):
        verdict += ", ours the better" if ours < paper else ", ours the worse"
    return f"{ours - paper:+.1f}° from the paper, {verdict}".replace("-0.0", "0.0").replace("-", "−")


def mean_and_spread(values: Sequence[float], unit: str = "°", digits: int = 1) -> str:
    """For the table: "35.2° (33.9 … 36.8)", the mean and the extremes over seeds."""
    mean = f"{np.mean(values):.{digits}f}{unit}"
    return f"{mean} ({min(values):.{digits}f} … {max(values):.{digits}f})" if len(values) > 1 else mean
