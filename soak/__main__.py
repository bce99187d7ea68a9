"""`python -m soak`: every trial, each with its share of the time; rows in soak/results/, a table in docs/."""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import swallowtail as st
from soak import products
from soak.report import write_report
from soak.trial import Row, Trial, run

KINDS = ("products", "guards", "damage", "interrupts", "kills", "workers", "limits", "streams")
RESULTS = Path(__file__).parent / "results" / "soak.csv"
FULL = 1500.0  # seconds of a full run


def all_trials() -> list[Trial]:
    """The trials of every kind."""
    return [trial for kind in KINDS for trial in importlib.import_module(f"soak.{kind}").TRIALS]


def warm_up() -> None:
    """Compile what the trials use, here: their children are forks, and have limits of time."""
    H = st.random_symmetric(16, 4, 0)
    st.fit_symmetric(H)
    st.fit_symmetric(H, wiring="pairs")
    st.GivensCovariance(random_state=0).fit(np.random.default_rng(0).normal(size=(60, 6)))
    st.Tracker(8).update(np.ones(8), np.ones(8))
    weight = torch.nn.Parameter(torch.ones(3, 8))
    weight.grad = torch.ones(3, 8)
    st.optim.GivensAdam([weight]).step()
    for outcome in itertools.islice(products._batch(range(60)), 200):
        if outcome is not None:
            print(outcome, file=sys.stderr)


def soak(trials: list[Trial], seconds: float, seed: int) -> list[Row]:
    """Run the trials one after another. In a shorter run each has fewer cases in proportion."""
    # The children of this process are forks: OpenMP's threads would be missing in them.
    torch.set_num_threads(1)
    rows, part = [], min(1.0, seconds / FULL)
    for trial in trials:
        cases = max(1, round(trial.cases * part))
        with tqdm(total=cases, desc=trial.name, unit="case", mininterval=1.0) as bar:
            row = run(
                trial,
                seed,
                cases,
                trial.share * seconds,
                lambda done, bar=bar: bar.update(done - bar.n),
            )
        rows.append(row)
        if row.failures:
            print(
                f"{row.name}: {row.failures} of {row.cases} failed; first: {row.first_failure}",
                file=sys.stderr,
            )
    return rows


def write_rows(path: Path, rows: list[Row]) -> list[Row]:
    """As CSV, in the order of the trials; rows of trials that were not run this time stay. Returns all of them."""
    path.parent.mkdir(exist_ok=True)
    found = {row.name: row for row in (*(read_rows(path) if path.exists() else []), *rows)}
    names = [trial.name for trial in all_trials()]
    rows = sorted(found.values(), key=lambda row: names.index(row.name) if row.name in names else len(names))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                row["name"],
                int(row["cases"]),
                int(row["failures"]),
                float(row["seconds"]),
                row["first_failure"],
            )
            for row in csv.DictReader(file)
        ]


def main() -> int:
    """Exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=FULL, help=f"of the whole run, about; {FULL:.0f}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="trials whose name contains this")
    parser.add_argument(
        "--write", action="store_true", help="keep the rows, and write docs/reliability.md from them"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    rows = soak([t for t in all_trials() if options.only in t.name], options.seconds, options.seed)
    for row in rows:
        print(f"{row.name:40s} {row.cases:8d} cases {row.failures:4d} failures {row.seconds:8.1f} s")
    if options.write:
        write_report(write_rows(RESULTS, rows))
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
