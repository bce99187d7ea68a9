"""A limit on the time of a study: what does not end in time is left out, and said."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator

LONGEST = 0.25  # of the time for everything, for one part


class Limit:
    """The time for the study, if there is one: what does not end in time is left out."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds or math.inf
        self.until = time.perf_counter() + self.seconds

    @contextlib.contextmanager
    def hold(self, what: str) -> Iterator[None]:
        """Do what is inside, or give up on it when its time is over."""
        left = min(self.until - time.perf_counter(), LONGEST * self.seconds)
        if left == math.inf:
            yield
            return

        def stop(*_: object) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, stop)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))
            yield
        except TimeoutError:
            print(f"left out, no time: {what}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
