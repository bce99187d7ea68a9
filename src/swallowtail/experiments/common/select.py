"""Looking things up in rows, and marks in numbered colours for what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from swallowtail.experiments.common.draw import COLOURS
from swallowtail.experiments.common.run import Row

PALETTE = [COLOURS[name] for name in ("blue", "red", "green", "purple", "orange", "sky", "black", "grey")]
MARKERS = "osD^vPX*"  # one for each colour, for those who print in black


def where(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have all that is wanted."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def values(rows: list[Row], column: str, **wanted: Any) -> list[float]:
    """A column's numbers in the rows that have all that is wanted."""
    return [float(row[column]) for row in where(rows, **wanted) if column in row]


def mean(rows: list[Row], column: str, **wanted: Any) -> float:
    """Of `values`; NaN if there are none."""
    found = values(rows, column, **wanted)
    return float(np.mean(found)) if found else float("nan")


def median(rows: list[Row], column: str, **wanted: Any) -> float:
    """Of `values`; NaN if there are none."""
    found = values(rows, column, **wanted)
    return float(np.median(found)) if found else float("nan")


def kinds(rows: list[Row], column: str, **wanted: Any) -> list[Any]:
    """The different entries of a column, in the order they come."""
    return list(dict.fromkeys(row[column] for row in where(rows, **wanted) if column in row))


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
