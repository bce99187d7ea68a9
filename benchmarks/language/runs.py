"""Training runs, one after another in this process or several at a time in others."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterator
from multiprocessing import TimeoutError as TooLate
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.common.rows import Row
from benchmarks.language.training import Job, text, train


class Runs:
    """Trains jobs. The processes stay from one list of jobs to the next: each takes seconds to start."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._pool: Any = None
        self._took = dict[tuple[str, str, int], float]()  # seconds of the last run of a kind

    def __call__(self, jobs: list[Job], until: float) -> Iterator[list[Row]]:
        """The rows of each run as it ends. A run that fails, or does not end in time, is left out.

        In this process none begins that would not end in time, as far as earlier runs of its method can tell.
        """
        if self.processes == 1:
            for job in jobs:
                begin, kind = time.perf_counter(), (job.size, job.method, job.steps)
                if begin + self._took.get(kind, job.steps * job.ms / 1e3) > until:
                    print(f"left out, no time: {job.method} {job.rate:g} seed {job.seed}", flush=True)
                elif rows := attempt(job, until):
                    self._took[kind] = time.perf_counter() - begin
                    yield rows
            return
        if not jobs or time.perf_counter() >= until:
            return
        self.start()
        ends = self._pool.imap_unordered(attempt, jobs)
        for k in range(len(jobs)):
            try:
                rows = ends.next(max(0.1, until - time.perf_counter()))
            except TooLate:
                print(f"left out: {len(jobs) - k} runs that did not end in time", flush=True)
                self.stop()
                return
            if rows:
                yield rows

    def start(self) -> None:
        """Begin to start the processes."""
        if self.processes > 1 and self._pool is None:
            self._pool = get_context("spawn").Pool(self.processes, torch.set_num_threads, (1,))

    def ready(self, device: str) -> None:
        """Wait until they are there."""
        if self._pool is not None:
            self._pool.map_async(_touch, [device] * self.processes, chunksize=1).get(120)

    def stop(self) -> None:
        """End them, with what they are doing."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def attempt(job: Job, until: float = math.inf) -> list[Row]:
    """No rows if it fails: the other runs go on."""
    try:
        return train(job, until)
    except Exception:
        print(f"left out: {job}\n{traceback.format_exc()}", flush=True)
        return []


def _touch(device: str) -> None:
    """Read the text and set up the device; long enough for every process to get its turn."""
    text()
    torch.zeros(1, device=device)
    time.sleep(0.3)
