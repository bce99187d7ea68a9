"""How the figures look: one colour per method, text large enough for a phone, a band for the spread."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swallowtail.experiments.common.rows import Row

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
PALETTE = [COLOURS[name] for name in ("blue", "red", "green", "purple", "orange", "sky", "black", "grey")]
MARKERS = "osD^vPX*"  # one for each colour, for those who print in black
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


def line(axes: Axes, index: int, x: Any, y: Any, label: str | None = None, **style: Any) -> None:
    """A curve in the colour and with the marker of its number."""
    style = {"markersize": 5, "marker": MARKERS[index % len(MARKERS)], **style}
    axes.plot(x, y, color=PALETTE[index % len(PALETTE)], label=label, **style)


def bars(axes: Axes, names: list[str], lengths: list[float], text: str = "{:.3g}", groups: int = 1) -> None:
    """Horizontal bars, each under its name and with its number; the first on top, ``groups`` of them in one colour."""
    size = max(1, len(names) // groups)
    colours = [PALETTE[i // size % len(PALETTE)] if groups > 1 else PALETTE[0] for i in range(len(names))]
    drawn = axes.barh(range(len(names)), lengths, 0.45, color=colours)
    for place, name in enumerate(names):
        axes.text(0.01, place - 0.27, name, transform=axes.get_yaxis_transform(), va="bottom", fontsize=10.5)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.bar_label(drawn, [text.format(length) for length in lengths], padding=3, fontsize=10.5)
    axes.margins(x=0.15)
    axes.grid(visible=False)
