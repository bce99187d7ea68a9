"""What every trial shares: outcomes, the runner that counts them, and children that may crash."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

Outcome = str | None  # None: as promised; otherwise what is wrong
Outcomes = Iterator[Outcome]


class Trial(NamedTuple):
    """One kind of trial."""

    name: str
    outcomes: Callable[[int], Outcomes]  # of a seed
    cases: int  # in a full run
    share: float  # of the time of a full run, at most


class Row(NamedTuple):
    """What came of a trial."""

    name: str
    cases: int
    failures: int
    seconds: float
    first_failure: str = ""


def run(
    trial: Trial, seed: int, cases: int, seconds: float, tell: Callable[[int], None] | None = None
) -> Row:
    """Count the outcomes of a trial until it has had so many cases, or so many seconds."""
    begin, done, failures, first = time.perf_counter(), 0, 0, ""
    with contextlib.closing(trial.outcomes(seed)) as outcomes:  # type: ignore[type-var]
        for outcome in outcomes:
            done += 1
            if outcome is not None:
                failures += 1
                first = first or outcome
            if tell is not None:
                tell(done)
            if done >= cases or time.perf_counter() - begin > seconds:
                break
    return Row(
        trial.name, done, failures, round(time.perf_counter() - begin, 2), " ".join(first.split())[:300]
    )


def in_child(work: Callable[[], Outcomes], timeout: float) -> Outcomes:
    """The outcomes of ``work``, run in a fork of this process: a crash or a hang there is one more outcome."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work_and_leave(work, writing)
    os.close(writing)
    end, rest, late = time.perf_counter() + timeout, b"", False
    try:
        while True:
            late = not select.select([reading], [], [], max(0.0, end - time.perf_counter()))[0]
            data = b"" if late else os.read(reading, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        yield f"no end within {timeout} s"
    elif code not in (0, -signal.SIGKILL):
        yield f"the process ended with {code}"


def _work_and_leave(work: Callable[[], Outcomes], writing: int) -> None:
    """Never returns: this is the child."""
    try:
        faulthandler.disable()  # a crash is counted; its traceback would be noise
        with os.fdopen(writing, "w") as out:
            try:
                for outcome in work():
                    out.write(json.dumps(outcome) + "\n")
                    out.flush()
            except BaseException:
                out.write(json.dumps(traceback.format_exc()[-600:]) + "\n")
    finally:
        os._exit(0)
