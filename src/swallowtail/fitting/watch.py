"""Watching a fit: progress bar, time limit, Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import FrameType
from typing import Any

from swallowtail.fitting.core.records import Callback, Stop
from swallowtail.kernels.cpu.jit import seconds_compiling
from swallowtail.progress import Bar

AFTERWARDS = 3.0  # times our own work between products: completing H, a first fit, measuring it
_AROUND: ContextVar[Watch | None] = ContextVar("_AROUND", default=None)


def at_stop(action: Callable[[], None]) -> None:
    """Let the `Watch` around the caller, if there is one, end with ``action`` when it has stopped a fit."""
    watch = _AROUND.get()
    if watch is not None:
        watch.actions.append(action)


class Watch:
    """A context whose ``callback`` shows progress and stops a fit, keeping its best, in time or on Ctrl-C.

    Args:
        progress: show a bar.
        max_seconds: stop then.
        label: shown before the bar.
        callback: the user's own, called after each step; it may raise `Stop`.
    """

    def __init__(
        self,
        progress: bool,
        max_seconds: float | None,
        label: str = "fit",
        callback: Callback | None = None,
    ) -> None:
        self.begin, self._compiled = time.perf_counter(), seconds_compiling()
        self.limit = None if max_seconds is None else self.begin + max_seconds
        self.status = ""  # "time", "interrupted" or "stopped" once it has stopped a fit
        self._users = callback
        self._bar = Bar(desc=label, unit="step", disable=not progress)
        self.actions: list[Callable[[], None]] = []  # see `at_stop`
        self._handler: Any = None
        self._before: Token[Watch | None] | None = None

    @property
    def seconds(self) -> float:
        """Since it began, without the time in which kernels were compiled: that comes once per machine."""
        return time.perf_counter() - self.begin - (seconds_compiling() - self._compiled)

    def callback(self, stage: str, done: int, objective: float, later: float = 0.0) -> None:
        """Called by the fitters after every step; raises `Stop`, ``later`` seconds before the limit."""
        if not self._bar.disable:
            error = f"{objective**0.5:.4f}" if objective >= 0 else f"{objective:.4f}"
            # Not NaN.
            text = f"{done} rotations, error {error}" if objective == objective else f"{done} columns"
            self._bar.set_postfix_str(f"{stage}, {text}", refresh=False)
            self._bar.update()
        self._ask_the_user(stage, done, objective)
        if self.limit is not None and time.perf_counter() + later > self.limit:
            self.status = "time"
        if self.status:
            raise Stop

    def pulse(self) -> None:
        """For the inside of a long step, where there is nothing to show: raises `Stop` when the fit should end."""
        if self.limit is not None and time.perf_counter() > self.limit and not self.status:
            self.status = "time"
        if self.status:
            raise Stop

    def stop_if_late(self) -> None:
        """Raise `Stop` if time is up; for what follows a fit, which is done whatever comes of it."""
        if self.limit is not None and time.perf_counter() > self.limit:
            raise Stop

    def _ask_the_user(self, stage: str, done: int, objective: float) -> None:
        if self._users is None or self.status:
            return
        try:
            self._users(stage, done, objective)
        except Stop:
            self.status = "stopped"
        except KeyboardInterrupt:
            self.status = "interrupted"

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.status == "interrupted":  # the second time they mean it
            raise KeyboardInterrupt
        self.status = "interrupted"

    def __enter__(self) -> Watch:
        self._before = _AROUND.set(self)
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._bar.close()
        if self._before is not None:
            _AROUND.reset(self._before)
        try:
            if self.status or (kind is not None and issubclass(kind, KeyboardInterrupt)):
                for action in self.actions:
                    action()
        finally:
            if self._handler is not None:
                signal.signal(signal.SIGINT, self._handler)


def in_time(product: Callable[[Any], Any], watch: Watch) -> tuple[Callable[[Any], Any], Callback]:
    """A product and a callback that ask for no more products than there is time left to use.

    What has to come after the last product takes `AFTERWARDS` times as long as our own work between them.
    """
    in_products = 0.0

    def timed(X: Any) -> Any:
        nonlocal in_products
        begin = time.perf_counter()
        Y = product(X)
        in_products += time.perf_counter() - begin
        return Y

    def callback(stage: str, done: int, objective: float) -> None:
        later = AFTERWARDS * (watch.seconds - in_products) if stage == "probe" else 0.0
        watch.callback(stage, done, objective, later)

    return timed, callback
