"""Rates tuned alike: every method climbs to its best rate with one seed, then runs with the others."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

from benchmarks.language.methods import METHODS
from benchmarks.language.runs import Runs
from benchmarks.language.tasks import Table, Task, last_loss
from benchmarks.language.training import EQUAL_STEPS, EQUAL_TIME, STEPS_BEFORE, Job, Trainer

# Of each method's rate. On a GPU two rates begin, where other runs had their best: a climb needs a third at least.
GRID = {"0.2 M": (4, 8, 2, 16), "20 M": (1, 0.5), "100 M": (0.5, 1)}
GRIDS = {
    ("20 M", "SOAP"): (1, 2),
    ("100 M", "SOAP"): (1, 0.5),
    ("20 M", "Muon"): (2, 1),
    ("100 M", "Muon"): (2, 1),
}
FIRST_SEED = 500
SHARE = 0.85  # of the seconds that runs are made to fit into
CLIMB = {"0.2 M": 0.5, "20 M": 1.2, "100 M": 1.2}  # runs beyond the grid per method, on average: a guess
# Seconds of a run beside its steps: the model, its graph, validation. A guess.
AROUND = {"cpu": 0.0, "cuda": 1.0}
LAST = "Muon"  # the share of the gap, which is judged at equal steps, does without it
FARTHEST = 4  # rates beyond a grid, at most


def best_of(tried: dict[float, float]) -> float:
    """The rate with the least loss; the least rate if none has one."""
    return min(tried, key=lambda rate: (tried[rate], rate))


def beyond(tried: dict[float, float]) -> float | None:
    """Twice or half the best rate, if that is the largest or the least so far."""
    best = best_of(tried)
    if best == min(tried):
        return best / 2
    return 2 * best if best == max(tried) else None


def grid(size: str, method: str) -> list[float]:
    """The rates that a method begins with."""
    return [factor * METHODS[method].rate for factor in GRIDS.get((size, method), GRID[size])]


def plan(task: Task, table: Table, methods: list[str], options: argparse.Namespace) -> dict[str, int]:
    """Steps of each method: as many as wished, or fewer if the seconds are too short for all runs.

    At equal steps for those of one seed: others follow while there is time. Runs that go on from earlier ones have as
    many steps.
    """
    ms = table.milliseconds(task.size)
    further = options.seeds - 1 if task.judged == "time" else 0
    runs = options.seeds if options.rates else len(GRID[task.size]) + CLIMB[task.size] + further
    at_once = options.processes if options.device == "cpu" else 1  # a GPU is shared
    room = SHARE * task.left * at_once / runs  # seconds for one run of every method
    if task.judged == "time":
        missing = [method for method in methods if method not in ms]
        if missing:
            raise SystemExit(f"expected times of a step of {missing}, got none; run without --no-time first")
        seconds = min(options.equal_time, room / len(methods))
        return {method: max(10, round(1e3 * seconds / ms[method])) for method in methods}
    begun = table.lengths(task.size)
    if begun and min(begun) <= options.steps:
        return dict.fromkeys(methods, max(k for k in begun if k <= options.steps))
    judged = [method for method in methods if method != LAST] or methods
    together = sum(ms.get(method, 0.0) for method in judged) / 1e3
    room -= AROUND[options.device] * len(judged)
    steps = min(options.steps, int(room / together) // 10 * 10) if together else options.steps
    return dict.fromkeys(methods, max(10, steps))


def measure(task: Task, options: argparse.Namespace, table: Table, runs: Runs) -> None:
    """All losses of one task."""
    methods, ms = options.methods.split(","), table.milliseconds(task.size)
    if options.device == "cuda" and task.judged == "steps" and "GivensAdam" in methods:
        _compile(task)
    steps = plan(task, table, methods, options)
    print(task.size, task.judged, "steps:", steps, f"{task.left:.0f} s left", flush=True)
    tuning = Tuning(task, options, table, runs, steps, ms)
    if options.rates:
        tuning.rates = dict(zip(methods, map(float, options.rates.split(",")), strict=True))
        tuning.seeds(methods, first=0)
        return
    alone = [LAST] if task.judged == "steps" and LAST in methods else []
    for group in ([method for method in methods if method not in alone], alone):
        tuning.climb(group)
        tuning.seeds(group, first=1)


@dataclass
class Tuning:
    """The runs of a task, and what came of them."""

    task: Task
    options: argparse.Namespace
    table: Table
    runs: Runs
    steps: dict[str, int]
    ms: dict[str, float]  # of a step
    tried: dict[str, dict[float, float]] = field(default_factory=dict)  # last losses by rate, first seed
    rates: dict[str, float] = field(default_factory=dict)  # that are given rather than looked for

    def climb(self, methods: list[str]) -> None:
        """The grid, then on while the best rate is at an edge."""
        size, most = self.task.size, max((len(grid(self.task.size, m)) for m in methods), default=0)
        starts = [(m, rate) for k in range(most) for m in methods for rate in grid(size, m)[k : k + 1]]
        self.run([self.job(*start) for start in starts])
        for _ in range(FARTHEST):
            tried = {m: self.tried[m] for m in methods if m in self.tried}
            edges = [self.job(m, rate) for m, of in tried.items() if (rate := beyond(of)) is not None]
            seeds = [self.job(m, best_of(of)) for m, of in tried.items()] * (self.options.seeds - 1)
            seconds = sum(each.steps * each.ms for each in edges + seeds) / 1e3
            # In equal time a seed is worth more than a rate; at equal steps all hangs on the rates.
            if not edges or (self.task.judged == "time" and seconds > self.task.left):
                return
            if not self.run(edges):
                return

    def seeds(self, methods: list[str], first: int) -> None:
        """Further seeds at the best rates, all methods with one seed before the next."""
        best = {
            method: best_of(self.tried[method]) for method in methods if method in self.tried
        } | self.rates
        seeds = range(self.options.first_seed + first, self.options.first_seed + self.options.seeds)
        self.run([self.job(method, rate, seed) for seed in seeds for method, rate in best.items()])

    def job(self, method: str, rate: float, seed: int | None = None) -> Job:
        """Of this task; the first seed unless another is given."""
        seed = self.options.first_seed if seed is None else seed
        part = {"steps": EQUAL_STEPS, "time": EQUAL_TIME}[self.task.judged]
        ms, device = self.ms.get(method, 0.0), self.options.device
        return Job(self.task.size, method, rate, seed, self.steps[method], device, part, ms)

    def run(self, jobs: list[Job]) -> bool:
        """Those whose rows are not there yet. Returns whether any has rows now: for the others there was no time."""
        missing, ended = [], 0
        for job in jobs:
            loss = self.table.known(job)
            if loss is None:
                missing.append(job)
            else:
                self.note(job.method, job.rate, job.seed, loss)
        for rows in self.runs(missing, self.task.until):
            self.table.add(rows)
            self.note(*(rows[-1][key] for key in ("method", "rate", "seed")), last_loss(rows))
            ended += 1
        return ended > 0 or len(missing) < len(jobs)

    def note(self, method: str, rate: float, seed: int, loss: float) -> None:
        """Remember what a rate is worth."""
        if seed == self.options.first_seed:
            self.tried.setdefault(method, {})[rate] = loss
        print(f"{method} {rate:g} seed {seed}: {loss:.4f}, {self.task.left:.0f} s left", flush=True)


def _compile(task: Task) -> None:
    """GivensAdam's kernels, so that the time of its runs can be foreseen."""
    begin = time.perf_counter()
    trainer = Trainer(Job(task.size, "GivensAdam", 1e-3, 0, 1, "cuda"))
    for _ in range(STEPS_BEFORE["GivensAdam"]):
        trainer.step(0.1)
    trainer.validate()
    print(f"compiled in {time.perf_counter() - begin:.1f} s", flush=True)
