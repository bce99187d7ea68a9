"""Optimisers on a byte-level language model, trained on Python's own library sources.

    python -m benchmarks.language [--device cuda] [--steps 400] [--equal-time 15] [--seeds 3] [TASK ...]
    python -m benchmarks.language --device cuda "100 M,time,110" "20 M,time,50" "20 M,steps,30"
    python -m benchmarks.language --device cuda --methods AdamW,SOAP,GivensAdam --rates .001,.002,.001 "20 M,steps,90"
    python -m benchmarks.language --report      # plots and the page from the committed rows

A task is a size, what the methods have in common ("steps", or the "time" of a run) and the seconds for all of it.
With equal time every method gets as many steps as fit, at its own time per step, and its schedule has that length.
Times come from short runs alone on the machine. Runs for losses share it (``--processes``).

Rates are tuned alike: every method runs with every rate of its grid, for one seed. If the best is at an edge, the next
rate is tried as well. The best one runs with the other seeds. Runs get shorter if they would not fit into the seconds.
With ``--rates`` every method runs at its own rate only. Rows are written after every run. They replace those of the
same model and kind; ``--more`` keeps those of other methods, rates and seeds, which ran at another time.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from typing import NamedTuple

from benchmarks.common.rows import RESULTS, Row, read_rows, write_rows
from benchmarks.language.methods import METHODS
from benchmarks.language.runs import Runs
from benchmarks.language.training import SIZES, Job, Trainer, time_step

GRID = {"0.2 M": (4, 8, 2, 16), "20 M": (1, 2, 0.5), "100 M": (1, 0.5, 2)}  # of each method's rate
FIRST_SEED = 500
SHARE = 0.85  # of the seconds that runs are made to fit into
EDGE_RUNS = 0.5  # per method, on average: a guess


class Task(NamedTuple):
    """A comparison: which model, what is equal, and when it has to end."""

    size: str
    judged: str
    until: float

    @staticmethod
    def read(text: str) -> Task:
        given = text.split(",")
        size, judged, seconds = given + ["", "steps", "1e6"][len(given) :]
        if size not in SIZES or judged not in ("steps", "time"):
            raise SystemExit(
                f'expected a task such as "20 M,time,60" with a size of {list(SIZES)}, got {text!r}'
            )
        return Task(size, judged, time.perf_counter() + float(seconds))

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.perf_counter()


class Table:
    """The rows of a file. New ones replace those of the same part and size; a run that is stopped leaves its rows.

    ``more``: only those of the same method, rate and seed.
    """

    def __init__(self, name: str, device: str, more: bool = False) -> None:
        self.name, self.device = name, device
        self._same = ("part", "size", "method", "rate", "seed") if more else ("part", "size")
        self._earlier, self._new = read_rows(name), list[Row]()

    def add(self, rows: list[Row]) -> None:
        self._new += rows
        command = shlex.join(["python", "-m", "benchmarks.language", *sys.argv[1:]])
        path = write_rows(f"{self.name}.new", self.rows(), command, self.device)
        path.replace(RESULTS / f"{self.name}.csv")

    def rows(self) -> list[Row]:
        replaced = {self._key(row) for row in self._new}
        return [row for row in self._earlier if self._key(row) not in replaced] + self._new

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self._same)

    def milliseconds(self, size: str) -> dict[str, float]:
        """Of a step of each method."""
        return {r["method"]: float(r["ms"]) for r in self.rows() if (r["part"], r["size"]) == ("step", size)}


def final(rows: list[Row]) -> float:
    value = float(rows[-1]["loss"])
    return value if math.isfinite(value) else math.inf


def best_of(tried: dict[float, float]) -> float:
    """The rate with the least loss; the least rate if none has one."""
    return min(tried, key=lambda rate: (tried[rate], rate))


def beyond(tried: dict[float, float]) -> float | None:
    """Twice or half the best rate, if that is the largest or the least so far."""
    best = best_of(tried)
    if best == min(tried):
        return best / 2
    return 2 * best if best == max(tried) else None


def time_steps(size: str, methods: list[str], device: str, table: Table, runs: Runs) -> None:
    """Alone on the machine: other processes have started by then, and wait."""
    runs.start()
    if device == "cuda":  # kernels compile meanwhile
        Trainer(Job(size, "GivensAdam", 1e-3, 0, 1, device)).step(0.5)
    runs.ready(device)
    for method in methods:
        row = time_step(Job(size, method, METHODS[method].rate, 0, 0, device))
        print({key: row[key] for key in ("size", "method", "ms", "first_s")}, flush=True)
        table.add([row])


def plan(task: Task, ms: dict[str, float], methods: list[str], options: argparse.Namespace) -> dict[str, int]:
    """Steps of each method: as many as wished, or fewer if the seconds are too short for all runs."""
    runs = options.seeds if options.rates else len(GRID[task.size]) + options.seeds - 1 + EDGE_RUNS
    at_once = options.processes if options.device == "cpu" else 1  # a GPU is shared
    room = SHARE * task.left * at_once / runs  # seconds for one run of every method
    if task.judged == "time":
        missing = [method for method in methods if method not in ms]
        if missing:
            raise SystemExit(f"expected times of a step of {missing}, got none; run without --no-time first")
        seconds = min(options.equal_time, room / len(methods))
        return {method: max(10, round(1e3 * seconds / ms[method])) for method in methods}
    together = sum(ms.get(method, 0.0) for method in methods) / 1e3
    steps = min(options.steps, int(room / together) // 10 * 10) if together else options.steps
    return dict.fromkeys(methods, max(10, steps))


def measure(task: Task, options: argparse.Namespace, table: Table, runs: Runs) -> None:
    """All losses of one task."""
    methods, ms = options.methods.split(","), table.milliseconds(task.size)
    steps, part = plan(task, ms, methods, options), {"steps": "loss", "time": "race"}[task.judged]
    print(task.size, task.judged, "steps:", steps, f"{task.left:.0f} s left", flush=True)

    def job(method: str, rate: float, seed: int = options.first_seed) -> Job:
        return Job(task.size, method, rate, seed, steps[method], options.device, part, ms.get(method, 0.0))

    def seconds(jobs: list[Job]) -> float:
        return sum(each.steps * each.ms for each in jobs) / 1e3

    def run(jobs: list[Job]) -> None:
        for rows in runs(jobs, task.until):
            table.add(rows)
            method, rate, seed = (rows[-1][key] for key in ("method", "rate", "seed"))
            if seed == options.first_seed:
                tried.setdefault(method, {})[rate] = final(rows)
            print(f"{method} {rate:g} seed {seed}: {final(rows):.4f}, {task.left:.0f} s left", flush=True)

    tried = dict[str, dict[float, float]]()
    if options.rates:
        rates = dict(zip(methods, map(float, options.rates.split(",")), strict=True))
        run([job(m, rates[m], options.first_seed + k) for k in range(options.seeds) for m in methods])
        return
    run([job(method, factor * METHODS[method].rate) for factor in GRID[task.size] for method in methods])
    edges = [job(method, rate) for method in tried if (rate := beyond(tried[method])) is not None]
    seeds = [
        job(method, best_of(rates), options.first_seed + k)
        for k in range(1, options.seeds)
        for method, rates in tried.items()
    ]
    if seconds(edges) + seconds(seeds) < task.left:
        run(edges)
    run([each._replace(rate=best_of(tried[each.method])) for each in seeds])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help='such as "20 M,time,60"; "0.2 M" unless given'
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=400, help="of a run at equal steps, at most")
    parser.add_argument(
        "--equal-time", type=float, default=15.0, help="seconds of a run at equal time, at most"
    )
    parser.add_argument("--rates", default="", help="of the methods, in their order, instead of a grid")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument(
        "--more", action="store_true", help="keep earlier rows of other methods, rates and seeds"
    )
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--no-time", dest="time", action="store_false", help="take the times of earlier rows")
    parser.add_argument("--name", default=None, help="of the rows; language-<device> unless given")
    parser.add_argument("--report", action="store_true", help="only read the committed rows")
    options = parser.parse_args()
    if not options.report:
        table = Table(options.name or f"language-{options.device}", options.device, options.more)
        runs, timed = Runs(options.processes), set[str]()
        for text in options.tasks or ["0.2 M"]:
            task = Task.read(text)
            if options.time and task.size not in timed:
                time_steps(task.size, options.methods.split(","), options.device, table, runs)
                timed.add(task.size)
            measure(task, options, table, runs)
        runs.stop()
        print("rows:", RESULTS / f"{table.name}.csv", flush=True)
    if options.name is None:
        from benchmarks.language.report import report  # matplotlib, which measuring does not need

        report()


if __name__ == "__main__":
    main()
