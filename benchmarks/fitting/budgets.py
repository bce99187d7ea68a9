"""The user's own budget, on matrices that development did not use: python -m benchmarks.fitting.budgets [--quick]

The fit beside every rival at each budget, on one core, in about ten minutes of it. Rows go to
benchmarks/results/fitting-budgets.csv, a table to docs/benchmarks.md; bars are printed as met or MISSED. --report
measures nothing. Times come from a calibration of this machine, made first. At equal time the two low-rank rivals also
get the rank that takes as long as the fit by the clock, measured in turn with it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.bars import Bar
from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.common.threads import one_thread
from benchmarks.common.timing import timed
from benchmarks.fitting.held_out import SEED, held_out
from benchmarks.fitting.kept import Transposed
from swallowtail.fitting.budget import UNITS
from swallowtail.fitting.methods.low_rank import diagonal_low_rank, low_rank
from swallowtail.fitting.rivals.measure import PROBES
from swallowtail.fitting.timing import calibrate
from swallowtail.metrics import error_angle

LOW_RANK = ("c·I + low rank", "diagonal + low rank")
FILE = "fitting-budgets"
MARGIN, ROUNDING = 1.02, 0.01  # a loss is an angle 2 % and 0.01° above the rival's
REPEATS, CALLS, VECTORS = 40, 3, 256


def budgets(quick: bool) -> list[Row]:
    """Every held-out matrix at every budget."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
        calibrate()
        for name, H in held_out(quick):
            for unit in UNITS:
                for row in _rows(np.ascontiguousarray(H, np.float64), unit):
                    rows.append(
                        {"part": "budgets", "matrix": name, "n": len(H), "seed": SEED, "budget": unit} | row
                    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few matrices; rows are not written")
    parser.add_argument("--report", action="store_true", help="bars and table of the rows there are")
    options = parser.parse_args()
    if options.report:
        rows = read_rows(FILE)
    else:
        with one_thread():
            rows = budgets(options.quick)
        if not options.quick:
            write_rows(FILE, rows, "python -m benchmarks.fitting.budgets")
    if not options.quick:
        replace_between(BENCHMARKS, "<!-- budgets -->", "<!-- end budgets -->", section(rows))
    for bar in budget_bars(rows):
        print(bar.line(75, "9.3g"))


def _rows(H: np.ndarray, unit: str) -> Iterator[Row]:
    source = torch.from_numpy(H).float()  # products are timed in float32
    result, wall, cpu = timed(lambda: st.fit_symmetric(source, budget=unit, seed=SEED, symmetrize=True))
    operator = result.operator
    yield {
        "contender": "swallowtail",
        "method": result.method,
        "n_rotations": operator.rotation.n_rotations,
        "rank": getattr(operator, "rank", 0),
        "floats": result.floats,
        "bytes": result.bytes,
        "multiply_adds": operator.multiply_adds,
        "model_seconds": result.time,
        "seconds": wall,
        "cpu_seconds": cpu,
        "angle": result.angle,  # on the probes that the rivals are measured on
        "relative_error": result.relative_error,
    }
    name = unit.replace("_", "-")
    for rival in result.rivals:
        kind = _kind(rival.name)
        if kind and name in rival.equal.split(", "):
            yield {"contender": kind, "note": rival.name, "angle": rival.angle, "floats": rival.floats}
    if unit == "time":
        yield from _by_the_clock(H, operator)


def _kind(name: str) -> str:
    starts = {"c·I": LOW_RANK[0], "diagonal": LOW_RANK[1], "band": "band", "HODLR": "HODLR", "dense": "dense"}
    for start, kind in starts.items():
        if name.startswith(start):
            return kind
    return "largest entries" if name.endswith("largest entries") else ""


def _by_the_clock(H: np.ndarray, operator: Any) -> Iterator[Row]:
    """The largest ranks whose products take no longer than the fit's."""
    n = len(H)
    x = torch.randn(VECTORS, n, generator=torch.Generator().manual_seed(0))

    ranks = sorted({r for r in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96) if r <= n})
    own, *others = least_seconds([operator, *(fused(torch.ones(n), torch.randn(n, r)) for r in ranks)], x)
    fast = [seconds <= own for seconds in others]
    rank = max((r for r, good in zip(ranks, fast, strict=True) if good), default=-1)
    for name, fit in zip(
        LOW_RANK, (lambda r: low_rank(H, [r])[r], lambda r: diagonal_low_rank(H, r)), strict=True
    ):
        if rank >= 0:
            row = {"contender": f"{name}, by the clock", "rank": rank, "measured_seconds": own}
            yield row | {"angle": error_angle(H, fit(rank), PROBES, SEED + 1)}


def fused(diagonal: torch.Tensor, basis: torch.Tensor) -> Transposed:
    """A diagonal and rank-one terms in their fastest form on a CPU.

    Faster than our own operator without rotations, which allocates its result: at n = 64 by a third.
    """
    return Transposed(diagonal, basis, VECTORS)


def least_seconds(operators: list[Any], x: torch.Tensor) -> list[float]:
    """The least of several measurements of each, taken in turn; enough of them for pairs to get code of their own."""
    least = [np.inf] * len(operators)
    for _ in range(REPEATS):
        for index, operator in enumerate(operators):
            for _ in range(CALLS):
                operator(x)
            begin = time.thread_time()  # on a shared machine only this is its own
            for _ in range(CALLS):
                operator(x)
            least[index] = min(least[index], (time.thread_time() - begin) / CALLS)
    return least


def scores(rows: list[Row]) -> dict[tuple[str, str], tuple[int, int, int, float]]:
    """(budget, rival) → wins, ties, losses, and the largest angle of ours over the rival's."""
    found: dict[tuple[str, str], tuple[int, int, int, float]] = {}
    mine = [row for row in rows if row["part"] == "budgets"]
    own = {(r["matrix"], r["budget"]): float(r["angle"]) for r in mine if r["contender"] == "swallowtail"}
    for row in mine:
        if row["contender"] == "swallowtail":
            continue
        ours, theirs = own[row["matrix"], row["budget"]], float(row["angle"])
        key = (str(row["budget"]), str(row["contender"]))
        wins, ties, losses, worst = found.get(key, (0, 0, 0, 0.0))
        if ours > MARGIN * theirs + ROUNDING:
            losses += 1
        elif theirs > MARGIN * ours + ROUNDING:
            wins += 1
        else:
            ties += 1
        found[key] = wins, ties, losses, max(worst, ours / max(theirs, ROUNDING))
    return found


def without_rotations(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """Budget → how many answers have no rotations, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row["part"] == "budgets" and row["contender"] == "swallowtail":
            none, total = found.get(str(row["budget"]), (0, 0))
            found[str(row["budget"])] = none + (int(row["n_rotations"]) == 0), total + 1
    return found


def budget_bars(rows: list[Row]) -> Iterator[Bar]:
    """No loss beyond 2 % to what the family holds; at equal time, rotations ahead on half of the matrices."""
    for (unit, rival), (_, _, losses, _) in scores(rows).items():
        if rival.startswith(LOW_RANK):
            yield Bar(f"budget {unit}: losses beyond 2 % to {rival}", losses, "≤", 0)
    ahead = _ahead_with_rotations(rows)
    if ahead:
        yield Bar("budget time: share with rotations and 2 % ahead of both", float(np.mean(ahead)), "≥", 0.5)


def _ahead_with_rotations(rows: list[Row]) -> list[bool]:
    found = []
    here = [row for row in rows if row["part"] == "budgets" and row["budget"] == "time"]
    for own in (row for row in here if row["contender"] == "swallowtail"):
        same = [row for row in here if row["matrix"] == own["matrix"] and row["contender"] in LOW_RANK]
        better = all(float(row["angle"]) > MARGIN * float(own["angle"]) for row in same)
        found.append(int(own["n_rotations"]) > 0 and better)
    return found


def section(rows: list[Row]) -> list[str]:
    """A table for docs/benchmarks.md."""
    found = scores(rows)
    if not found:
        return []
    lines = [
        "### The user's own budget",
        "",
        f"`fit_symmetric(H, budget=…)` on {len({r['matrix'] for r in rows if r['part'] == 'budgets'})} matrices that",
        "development did not use, with as much as the default rotations cost. Wins–ties–losses in angle; closer than",
        '2 % is a tie. Rivals cost no more than the budget. "By the clock" means the largest rank whose product, fused',
        "and in memory allocated beforehand, was measured to take no longer than the fit's. Where the budget pays for",
        "the dense matrix, as it does in time for small n, that is the rival instead of low rank.",
        "",
        "| rival | " + " | ".join(unit.replace("_", "-") for unit in UNITS) + " |",
        "|---|" + "---|" * len(UNITS),
    ]
    for rival in dict.fromkeys(rival for _, rival in found):
        cells = [
            "–".join(map(str, found[unit, rival][:3])) if (unit, rival) in found else "" for unit in UNITS
        ]
        lines.append(f"| {rival} | {' | '.join(cells)} |")
    counts = without_rotations(rows)
    cells = [f"{counts[unit][0]} of {counts[unit][1]}" for unit in UNITS]
    return [*lines, f"| *answers without rotations* | {' | '.join(cells)} |", ""]


if __name__ == "__main__":
    main()
