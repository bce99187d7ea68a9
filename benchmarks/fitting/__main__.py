"""The fitting benchmark: python -m benchmarks.fitting [--quick] [--only part,…] [--resume]

Fits every matrix of the table of bars on seeds that development never saw, beside c·I, c·I + low rank and
pyfaust's eigtj, on one core. Each part writes its rows to benchmarks/results/fitting.csv as it ends, so that a run
that was killed continues with --resume; then the bars are printed as met or MISSED, angle is drawn against time in
fitting-time.png, and README.md's table, docs/benchmarks.md and docs/bars.md are written. Seconds are those of the
processor: on one thread they are what a quiet machine's clock shows. Rows have both. The user's own budgets have a
command of their own: python -m benchmarks.fitting.budgets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from tqdm import tqdm

import swallowtail as st
from benchmarks.common.rows import FACTS, Row, machine, read_rows, write_rows
from benchmarks.common.threads import one_thread
from benchmarks.fitting.bars import report
from benchmarks.fitting.compare import low_rank_rows, warm_up
from benchmarks.fitting.curve import curve
from benchmarks.fitting.eigtj import has_pyfaust
from benchmarks.fitting.figure import plot
from benchmarks.fitting.hybrid import hybrid
from benchmarks.fitting.matrices import (
    algorithm1,
    butterfly,
    kernel4096,
    mnist,
    n1024,
    structured,
    synthetic,
)
from benchmarks.fitting.page import write_pages
from benchmarks.fitting.products import products, products_large
from benchmarks.fitting.recovery import recovery
from benchmarks.fitting.targets import inverse, likelihood

PARTS: dict[str, Callable[[bool], list[Row]]] = {
    part.__name__: part
    for part in (
        synthetic, butterfly, algorithm1, structured, products, inverse, recovery, mnist, products_large, n1024,
        kernel4096, curve, likelihood, hybrid,
    )
}  # fmt: skip
SLOW = ("n1024", "products_large", "kernel4096", "mnist")  # left out by --quick


def kept_rows(resume: bool, only: list[str]) -> list[Row]:
    """Rows of an earlier run that stay: all with --resume, those of other parts with --only."""
    rows = committed_rows() if resume or only else []
    other = {row["hardware"] for row in read_rows("fitting")} - {machine()["hardware"]}
    if rows and other:
        sys.exit(
            f"fitting.csv holds rows of another machine ({other}); start afresh, without --resume or --only"
        )
    return [row for row in rows if resume or row["part"] not in only]


def committed_rows() -> list[Row]:
    """The rows there are, without empty cells and without the columns that are added to every row."""
    rows = read_rows("fitting")
    return [{key: value for key, value in row.items() if key not in FACTS and value} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, no large matrices; rows are not written"
    )
    parser.add_argument("--only", default="", help=f"measure these again, keep the rest: {', '.join(PARTS)}")
    parser.add_argument("--resume", action="store_true", help="continue a run that was killed")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing: bars and plot of the rows there are"
    )
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    unknown = sorted(set(only) - set(PARTS))
    if unknown:
        parser.error(f"--only: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    rows: list[Row] = []  # a quick run keeps none
    if options.report:
        rows = committed_rows()
    elif not options.quick:
        rows = kept_rows(options.resume, only)
    done = {row["part"] for row in rows}
    names = [
        name
        for name in PARTS
        if name in (only or PARTS) and not (options.quick and not only and name in SLOW)
    ]
    names = [] if options.report else [name for name in names if name not in done or name in only]
    measure(names, rows, options.quick)
    report(rows)
    if any(row["part"] == "curve" for row in rows) and not options.quick:
        print("plot:", plot(rows))
        write_pages(rows)


def measure(names: list[str], rows: list[Row], quick: bool) -> None:
    """Run the parts and add their rows, to the file too unless ``quick``."""
    if not names:
        return
    if not has_pyfaust():
        print("pyfaust is not installed: no eigtj in this run; try: pip install -e .[bench]", file=sys.stderr)
    with one_thread():
        warm_up()
        low_rank_rows(np.eye(4), st.fit_symmetric(np.eye(4)).operator, 0)
        for name in (bar := tqdm(names, unit="part")):
            bar.set_description(name)
            rows[:] = [row for row in rows if row["part"] != name] + PARTS[name](quick)
            if not quick:
                write_rows("fitting", rows, "python -m benchmarks.fitting")


if __name__ == "__main__":
    main()
