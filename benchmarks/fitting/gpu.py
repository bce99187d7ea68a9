"""Angle at equal time on a GPU: python -m benchmarks.fitting.gpu --fit FILE --record TIMES, then --time FILE

--fit makes the fits on a CPU, with prices from a record of the GPU's times (`benchmarks.fitting.times`): one per
held-out matrix with ``budget="time"``, and the contenders of `benchmarks.fitting.frontier`. --time measures their
products on the GPU, in float32, 16384 vectors at a time, in turn with the rivals. These are fused, in memory allocated
beforehand; of several ways to write them the fastest counts. Rows go to benchmarks/results/fitting-budgets-cuda.csv
and fitting-frontier-cuda.csv. --report draws docs/frontier-cuda.png and writes a section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.bars import Bar
from benchmarks.common.pages import BENCHMARKS, ROOT, replace_between
from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.fitting.budgets import LOW_RANK, MARGIN, ROUNDING
from benchmarks.fitting.frontier import DENSE, contenders, matrices, plot
from benchmarks.fitting.held_out import SEED, held_out
from benchmarks.fitting.kept import Kept, least_seconds, load, plain_forms, priced_for, save, vectors_on
from swallowtail.fitting.methods.low_rank import diagonal_low_rank, low_rank
from swallowtail.fitting.rivals.measure import PROBES
from swallowtail.metrics import error_angle

BUDGETS, FRONTIER = "fitting-budgets-cuda", "fitting-frontier-cuda"
COMMAND, PICTURE = "python -m benchmarks.fitting.gpu", ROOT / "docs" / "frontier-cuda.png"
OURS = "swallowtail"
RANKS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


def budget_fits(quick: bool) -> Iterator[Kept]:
    """Of every held-out matrix: the fit, the dense matrix, and the low-rank rivals of every rank."""
    for matrix, H in held_out(quick):
        H, n = np.ascontiguousarray(H, np.float64), len(H)
        same = {"part": "budgets", "matrix": matrix, "n": n, "seed": SEED, "budget": "time"}
        fit = st.fit_symmetric(torch.from_numpy(H).float(), budget="time", seed=SEED, symmetrize=True)
        own = {"contender": OURS, "method": fit.method, "n_rotations": fit.operator.rotation.n_rotations}
        own |= {"rank": getattr(fit.operator, "rank", 0), "model_seconds": fit.time, "angle": fit.angle}
        yield Kept(same | own, fit.operator)
        yield Kept(same | {"contender": DENSE, "angle": 0.0}, None)
        ranks = [r for r in RANKS if r <= n]
        cuts = low_rank(H, ranks)
        for r in ranks:
            for name, form in zip(LOW_RANK, (cuts[r], diagonal_low_rank(H, r, cuts[r])), strict=True):
                angle = error_angle(H, form, PROBES, SEED + 1)  # on the fit's probes
                yield Kept(same | {"contender": name, "rank": r, "angle": angle}, None)


def frontier_fits(quick: bool) -> Iterator[Kept]:
    """Every contender on every matrix of the frontier."""
    for matrix, H in list(matrices())[-1 if quick else 0 :]:
        same = {"part": "frontier", "matrix": matrix, "n": len(H), "seed": SEED}
        for name, size, operator in contenders(H):
            angle = st.error_angle(H, operator.to("cpu", torch.float64), 1000, SEED)
            kept = None if name in LOW_RANK else operator
            yield Kept(same | {"contender": name, "angle": angle} | size, kept)
        yield Kept(same | {"contender": DENSE, "angle": 0.0}, None)


def timed(fits: list[Kept], device: str, seconds: float) -> list[Row]:
    """The rows with measured times; after so many ``seconds`` no further matrix begins."""
    begin, rows = time.monotonic(), []
    for matrix in dict.fromkeys(fit.row["matrix"] for fit in fits):
        if time.monotonic() - begin > seconds:
            print(f"ended after {seconds:g} s, before {matrix}")
            break
        here = [fit for fit in fits if fit.row["matrix"] == matrix]
        x = vectors_on(device, int(here[0].row["n"]))
        runs = [_runs(fit, x) for fit in here]
        least = iter(least_seconds([run for several in runs for run in several], x))
        for fit, several in zip(here, runs, strict=True):
            taken = min(next(least) for _ in several)
            rows.append(fit.row | {"vectors": len(x), "measured_seconds": taken})
        print(f"{time.monotonic() - begin:5.1f} s, {matrix}", flush=True)
    return rows


def _runs(fit: Kept, x: torch.Tensor) -> list[Any]:
    """What is measured for a contender: the fastest counts."""
    n, name = x.shape[1], fit.row["contender"]
    if name == DENSE:
        dense, result = torch.randn(n, n, device=x.device), torch.empty_like(x)
        return [lambda x: torch.mm(x, dense, out=result)]
    if name in LOW_RANK:
        return plain_forms(n, int(fit.row["rank"]), x, name == LOW_RANK[0])
    return [fit.operator.to(x.device, x.dtype)]


def by_the_clock(rows: list[Row]) -> Iterator[dict[str, float]]:
    """For each matrix: our angle and rotations, the least angles of rivals measured to take no longer, seconds."""
    for own in (row for row in rows if row["contender"] == OURS):
        same = [row for row in rows if row["matrix"] == own["matrix"] and row is not own]
        limit = float(own["measured_seconds"])
        found = {"ours": float(own["angle"]), "n_rotations": float(own["n_rotations"]), "seconds": limit}
        found["model"] = float(own["model_seconds"])
        for name in (*LOW_RANK, DENSE):
            fast = [r for r in same if r["contender"] == name and float(r["measured_seconds"]) <= limit]
            found[name] = min((float(row["angle"]) for row in fast), default=float("inf"))
        yield found


def scores(rows: list[Row]) -> dict[str, tuple[int, int, int]]:
    """Rival → wins, ties, losses at the time that was measured; matrices where it is never so fast count as wins."""
    found = dict.fromkeys((*LOW_RANK, DENSE), (0, 0, 0))
    for case in by_the_clock(rows):
        for name, (wins, ties, losses) in found.items():
            lost = case["ours"] > MARGIN * case[name] + ROUNDING
            won = case[name] > MARGIN * case["ours"] + ROUNDING
            found[name] = wins + won, ties + (not won and not lost), losses + lost
    return found


def shares(rows: list[Row]) -> tuple[int, int, int]:
    """How many answers have rotations and are 2 % ahead of both, how many have no rotations, of how many."""
    cases = list(by_the_clock(rows))
    ahead = [c["n_rotations"] > 0 and min(c[r] for r in LOW_RANK) > MARGIN * c["ours"] for c in cases]
    return sum(ahead), sum(c["n_rotations"] == 0 for c in cases), len(cases)


def gpu_bars(rows: list[Row]) -> Iterator[Bar]:
    """At equal measured time: no loss beyond 2 %, and rotations ahead on half of the matrices."""
    for name, (_, _, losses) in scores(rows).items():
        if name in LOW_RANK:
            yield Bar(f"H200, equal time: losses beyond 2 % to {name}", losses, "≤", 0)
    ahead, _, total = shares(rows)
    yield Bar("H200, equal time: share with rotations and 2 % ahead of both", ahead / max(total, 1), "≥", 0.5)


def section(rows: list[Row]) -> list[str]:
    """The table and the sentences of docs/benchmarks.md."""
    ahead, none, total = shares(rows)
    off = [case["seconds"] / case["model"] for case in by_the_clock(rows)]
    lines = [
        f'At equal time on an {rows[0]["hardware"]}: `fit_symmetric(H, budget="time")` on the same matrices, with',
        "prices measured on that GPU; float32, 16384 vectors at a time (`fitting-budgets-cuda.csv`). Fits were made on",
        "a CPU. A rival gets the largest rank that was measured to take no longer than the fit. It is fused, in memory",
        "allocated beforehand.",
        "",
        "| rival | wins–ties–losses, by the clock |",
        "|---|---|",
        *(f"| {name} | {'–'.join(map(str, score))} |" for name, score in scores(rows).items()),
        "",
        f"An answer with rotations is 2 % ahead of both low-rank rivals on {ahead} of {total} matrices. {none} answers",
        f"have no rotations. Measured times are {min(off):.2g} to {max(off):.2g} times those of the model, in the",
        f"median {np.median(off):.2g}.",
    ]
    bars = [f'"{b.name}" ({b.value:.3g}, asked {b.sign} {b.bound:g})' for b in gpu_bars(rows) if not b.met]
    return [*lines, f"Not met: {', '.join(bars) or 'none'}.", ""]


def report() -> None:
    """Bars, section and picture of the rows there are."""
    rows = read_rows(BUDGETS)
    replace_between(BENCHMARKS, "<!-- budgets cuda -->", "<!-- end budgets cuda -->", section(rows))
    for bar in gpu_bars(rows):
        print(bar.line(75, "9.3g"))
    print(plot(read_rows(FRONTIER), PICTURE, "Float32 on an H200", "µs for 16384 products"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", type=Path, help="make the fits and keep them in this file")
    parser.add_argument("--record", type=Path, help="times of the GPU, for --fit")
    parser.add_argument("--time", type=Path, help="measure the fits of this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu: rows are not written")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each part, begin none after")
    parser.add_argument("--quick", action="store_true", help="fits of few matrices")
    parser.add_argument("--report", action="store_true", help="bars, table and picture of the rows there are")
    options = parser.parse_args()
    if options.fit:
        if options.record is None:
            parser.error(
                "--fit: expected --record FILE too, times made by python -m benchmarks.fitting.times"
            )
        with priced_for("cuda", options.record):
            save(options.fit, [*budget_fits(options.quick), *frontier_fits(options.quick)])
    if options.time:
        for part, file in (("budgets", BUDGETS), ("frontier", FRONTIER)):
            fits = [fit for fit in load(options.time) if fit.row["part"] == part]
            rows = timed(fits, options.device, options.seconds)
            if options.device == "cuda":
                print("rows:", write_rows(file, rows, COMMAND, "cuda"))
    if options.report:
        report()


if __name__ == "__main__":
    main()
