"""What is compared, and where its rows go."""

from __future__ import annotations

import math
import shlex
import sys
import time
from typing import NamedTuple

from benchmarks.common.rows import RESULTS, Row, read_rows, write_rows
from benchmarks.language.training import EQUAL_STEPS, SIZES, Job


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

    ``more``: only those of the same method, rate and seed, and at equal steps of the same number of steps.
    """

    def __init__(self, name: str, device: str, more: bool = False) -> None:
        self.name, self.device, self._more = name, device, more
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
        same = ["part", "size"]
        if self._more:
            same += ["method", "rate", "seed", *(["steps"] if row["part"] == EQUAL_STEPS else [])]
        return tuple(str(row[name]) for name in same)

    def lengths(self, size: str) -> set[int]:
        """Numbers of steps of earlier runs at equal steps, if they count."""
        rows = self.rows() if self._more else []
        return {int(r["steps"]) for r in rows if (r["part"], r["size"]) == (EQUAL_STEPS, size)}

    def known(self, job: Job) -> float | None:
        """The last loss of such a run, if it is there already and earlier rows count."""
        wanted = (job.part, job.size, job.method, str(job.seed), str(job.steps), str(job.steps), job.device)
        for row in self.rows() if self._more else []:
            found = tuple(
                str(row[key]) for key in ("part", "size", "method", "seed", "steps", "step", "device")
            )
            if found == wanted and float(row["rate"]) == job.rate:
                return last_loss([row])
        return None

    def milliseconds(self, size: str) -> dict[str, float]:
        """Of a step of each method."""
        return {r["method"]: float(r["ms"]) for r in self.rows() if (r["part"], r["size"]) == ("step", size)}


def last_loss(rows: list[Row]) -> float:
    """Of a run; infinite if it came to nothing."""
    value = float(rows[-1]["loss"])
    return value if math.isfinite(value) else math.inf
