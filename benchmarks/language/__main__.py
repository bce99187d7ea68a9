"""Optimisers on a byte-level language model, trained on Python's own library sources.

    python -m benchmarks.language [--device cuda] [--sizes "20 M,100 M"] [--steps 400] [--seeds 3] [--seconds 600]
    python -m benchmarks.language --report      # plots and the page from the committed rows

Rates are tuned alike: every method with every rate of its grid, for one seed. The best rate then runs with the other
seeds. Losses come from runs that share the machine (``--processes``), times of a step from short runs of their own, so
loss against seconds is steps times the time of a step. Runs that do not fit into ``--seconds`` are left out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable
from multiprocessing import get_context

import torch

from benchmarks.common.rows import Row, write_rows
from benchmarks.language.methods import METHODS
from benchmarks.language.report import report
from benchmarks.language.training import SIZES, Job, time_step, train

GRID = {"0.2 M": (2, 4, 8, 16), "20 M": (0.5, 1, 2, 4), "100 M": (0.5, 1, 2)}  # of each method's rate
TIMED_STEPS = {"20 M": 20, "100 M": 10}
FIRST_SEED = 500


def losses(jobs: list[Job], processes: int, until: float) -> Iterable[list[Row]]:
    """Runs in turn, or several at a time; none is begun too late."""
    if processes == 1:
        for job in jobs:
            if time.perf_counter() < until:
                yield train(job)
        return
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        results = [pool.apply_async(train, (job,)) for job in jobs]
        for result in results:
            try:
                yield result.get(max(0.1, until - time.perf_counter()))
            except TimeoutError:
                print("left out: a run that did not end in time", flush=True)


def final(rows: list[Row]) -> float:
    value = float(rows[-1]["loss"]) if rows else math.inf
    return value if math.isfinite(value) else math.inf


def measure(size: str, options: argparse.Namespace, until: float) -> list[Row]:
    """All rows of a model of one size."""
    methods, device = options.methods.split(","), options.device
    found: list[Row] = []
    if options.time:
        for method in methods:
            rate, steps = METHODS[method].rate, TIMED_STEPS.get(size, 20)
            found.append(time_step(Job(size, method, rate, 0, steps, device)))
            print(found[-1], flush=True)
            if device == "cuda":
                torch.cuda.empty_cache()
    jobs = [
        Job(size, method, factor * METHODS[method].rate, FIRST_SEED, options.steps, device)
        for factor in GRID[size]
        for method in methods
    ]
    best: dict[str, tuple[float, Job]] = {}
    for rows in losses(jobs, options.processes, until):
        found += rows
        job = Job(*(rows[-1][field] for field in Job._fields))
        best[job.method] = min(best.get(job.method, (math.inf, job)), (final(rows), job))
        print(job, round(final(rows), 4), flush=True)
    jobs = [job._replace(seed=FIRST_SEED + k) for k in range(1, options.seeds) for _, job in best.values()]
    for rows in losses(jobs, options.processes, until):
        found += rows
        print(rows[-1]["method"], rows[-1]["rate"], rows[-1]["seed"], round(final(rows), 4), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", default="0.2 M", help=", ".join(SIZES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each size")
    parser.add_argument("--no-time", dest="time", action="store_false", help="do not time steps")
    parser.add_argument("--name", default=None, help="of the rows; language-<device> unless given")
    parser.add_argument("--report", action="store_true", help="only read the committed rows")
    options = parser.parse_args()
    if not options.report:
        rows = []
        for size in options.sizes.split(","):
            rows += measure(size, options, time.perf_counter() + min(options.seconds, 1e6))
            command = f"python -m benchmarks.language --device {options.device} --steps {options.steps}"
            name = options.name or f"language-{options.device}"
            print("rows:", write_rows(name, rows, command, options.device), flush=True)
    if options.name is None:
        report()


if __name__ == "__main__":
    main()
