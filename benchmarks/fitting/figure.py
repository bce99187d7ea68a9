"""The plot of angle against fitting time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.common.rows import RESULTS, Row


def plot(rows: list[Row]) -> Path:
    """Angle against fitting time, a panel for each matrix, into results/fitting-time.png."""
    rows = [row for row in rows if row["part"] == "curve" and row.get("angle", "") != ""]
    names = list(dict.fromkeys(row["matrix"] for row in rows))
    figure = Figure(figsize=(4.2 * len(names), 3.8), layout="constrained")
    styles = {
        "swallowtail, grown": ("#56B4E9", "o-"),
        "swallowtail, grown, 10 iterations": ("#009E73", "*-"),
        "swallowtail, grown and polished": ("#0072B2", "s-"),
        "swallowtail, built": ("#CC79A7", "P-"),
        "swallowtail": ("#000000", "D-"),
        "eigtj sequential": ("#D55E00", "v--"),
        "eigtj parallel": ("#E69F00", "^--"),
    }
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for contender, (color, style) in styles.items():
            points = [row for row in rows if (row["matrix"], row["contender"]) == (name, contender)]
            if points:
                x, y = ([float(row[column]) for row in points] for column in ("cpu_seconds", "angle"))
                axis.plot(x, y, style, color=color, label=contender, markersize=4)
        n = next(row["n"] for row in rows if row["matrix"] == name)
        axis.set(xscale="log", yscale="log", xlabel="processor seconds", title=f"{name}, n = {n}")
        axis.xaxis.set_minor_formatter("")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.yaxis.set_minor_formatter("{x:g}")
    figure.axes[0].set_ylabel("angle, degrees")
    figure.suptitle("¼, ½, 1, 2 and 4 × the paper's number of rotations")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(styles))
    path = RESULTS / "fitting-time.png"
    figure.savefig(path, dpi=120)
    return path
