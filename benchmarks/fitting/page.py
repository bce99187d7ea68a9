"""What the rows say, in words: the table of README.md and a section of docs/benchmarks.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.common.pages import BENCHMARKS, ROOT, replace_between
from benchmarks.common.rows import Row
from benchmarks.fitting.bars import bars, mean
from swallowtail.experiments.common.rows import read_rows as report_rows

BEGIN, END = "<!-- fitting -->", "<!-- end fitting -->"


class Line(NamedTuple):
    """A line of README's table, and the rows it is the mean of."""

    label: str
    part: str
    matrix: str
    contender: str
    K: int
    paper: str  # the angle that the paper gives, "" for none


TABLE = tuple(Line(*fields) for fields in (
    ("synthetic, 5 large eigenvalues of 64", "synthetic", "n_mu=5", "swallowtail, K=192", 192, "35"),
    ("synthetic, 32 of 64", "synthetic", "n_mu=32", "swallowtail, K=192", 192, "41"),
    ("synthetic, 64 of 64", "synthetic", "n_mu=64", "swallowtail, K=192", 192, "20"),
    ("covariance of digits, n = 64", "structured", "digits", "swallowtail", 192, ""),
    ("RBF kernel on an 8×8 grid", "structured", "RBF 8×8", "swallowtail", 192, ""),
    ("heat kernel of a sensor graph, n = 200", "structured", "sensor heat kernel", "swallowtail", 800, ""),
    ("MNIST's covariance (5000 images), n = 784", "mnist", "MNIST", "swallowtail, K=3920", 3920, "38"),
    ("the same, from 64 products only", "products", "MNIST", "swallowtail", 3920, ""),
))  # fmt: skip
FASHION = "Fashion-MNIST's covariance (60,000 images), n = 784"  # measured with the paper's experiments
LOW_RANK = ("c·I + low rank, equal floats", "c·I + low rank, equal multiply-adds")


def write_pages(rows: list[Row]) -> None:
    """Put both where their markers are."""
    replace_between(ROOT / "README.md", "<!-- fitting table -->", "<!-- end -->", _table(rows))
    replace_between(BENCHMARKS, BEGIN, END, _section(rows))


def _table(rows: list[Row]) -> list[str]:
    lines = [
        "| matrix | K | swallowtail | c·I + low rank, equal floats | equal multiply-adds | the paper |",
        "|---|---|---|---|---|---|",
    ]
    for line in TABLE:
        same = ", same products" if line.part == "products" else ""
        names = (line.contender, *(name + same for name in LOW_RANK))
        angles = [mean(rows, part=line.part, matrix=line.matrix, contender=name) for name in names]
        least = f"{np.nanmin(angles):.1f}" if np.isfinite(angles).any() else ""
        cells = [f"**{a:.1f}**" if f"{a:.1f}" == least else f"{a:.1f}" for a in angles]
        lines.append("| " + " | ".join([line.label, str(line.K), *cells, line.paper]) + " |")
    return [*lines, _fashion()]


def _fashion() -> str:
    """The line of Fashion-MNIST, from the rows of the report."""
    rows = [row for row in report_rows(ROOT / "docs/report/fig3.csv") if row.get("matrix") == "Fashion-MNIST"]
    own = next(row for row in rows if row["method"].startswith("pairs"))
    rivals = [next(row for row in rows if row["method"] == name) for name in LOW_RANK]
    angles = [row["angle"] for row in (own, *rivals)]
    cells = [f"**{a:.1f}**" if a == min(angles) else f"{a:.1f}" for a in angles]
    return "| " + " | ".join([FASHION, str(own["rotations"]), *cells, ""]) + " |"


def _section(rows: list[Row]) -> list[str]:
    lines = [
        "## Fitting",
        "",
        "Made by `python -m benchmarks.fitting` on seeds from 9000, which development did not use. Angles are in",
        "degrees, seconds are processor time of one thread. `--report` also prints all means, c·I and relative errors.",
        "",
        "How to read the table:",
        "",
        "- A bar is a limit that we set ourselves. Where no unit is named, it is a limit on the mean angle.",
        "- K is the number of rotations. n_mu is the number of large eigenvalues of the paper's synthetic matrix, with",
        "  n = 64; for n_mu=80, n = 1024.",
        "- The rival is c·I + low rank at equal floats. For fits from products it sees the same products.",
        "- eigtj is pyfaust's truncated Jacobi method, with the same K; the better of its two variants counts.",
        "- The exponential kernel lies on a grid. Its length is 8 steps, or a quarter of the grid's side.",
        "",
        "A first run on these seeds missed some bars. Then some parts were changed and run again: the time spent at",
        "n = 1024, on the dense kernel and on large fits from products, and the hybrid's choice of rank. The number of",
        "seeds grew too. The synthetic matrices and the butterflies at n = 64 have 120 seeds; at first they had 24 of",
        "these. Those 24 are harder: at n_mu=64 even c·I is 0.6° worse on them than on all 120. The products at",
        "n = 4096 have 24 seeds; at first they had one.",
        "",
        "| bar | measured | asked | |",
        "|---|---|---|---|",
    ]
    for bar in bars(rows):
        met = "met" if bar.met else "**missed**"
        name = bar.name.replace("|", "\\|")  # Markdown's own sign
        lines.append(f"| {name} | {bar.value:.3g} | {bar.sign} {bar.bound:g} | {met} |")
    lines += ["", "![angle against fitting time](../benchmarks/results/fitting-time.png)", ""]
    return lines + _hybrid(rows)


def _hybrid(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row["part"] == "hybrid"]
    if not found:
        return []
    names = ("rotations alone", "rotations and rank-one terms", LOW_RANK[1])
    lines = ["### Rank-one terms among the rotations, at equal work", ""]
    lines += [f"| matrix | {' | '.join(names)} | terms |", "|---|---|---|---|---|"]
    for matrix in dict.fromkeys(row["matrix"] for row in found):
        angles = [mean(found, matrix=matrix, contender=name) for name in names]
        least = f"{min(angles):.1f}"
        cells = [f"**{a:.1f}**" if f"{a:.1f}" == least else f"{a:.1f}" for a in angles]
        terms = mean(found, "rank", matrix=matrix, contender=names[1])
        lines.append(f"| {matrix} | {' | '.join(cells)} | {terms:.2g} |".replace("nan", "0"))
    return [*lines, ""]
