"""Ctrl-C and Numba: what would leave a lock locked, or come out as another error."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any


def put_off(compile_for_args: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba calls to compile, with Ctrl-C put off until it is done.

    Numba takes its global lock in Python code. An interrupt between the lock and the block it guards leaves it locked
    for ever: the next thread that has to compile would wait for it, and the main thread for that thread.

    The collector of cycles rests meanwhile: looking through what Numba makes takes a tenth of the time.
    """

    def compile_undisturbed(*arguments: Any, **options: Any) -> Any:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return compile_for_args(*arguments, **options)
        caught, collects = list[tuple[int, Any]](), gc.isenabled()
        signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
        gc.disable()
        try:
            return compile_for_args(*arguments, **options)
        finally:
            if collects:
                gc.enable()
            signal.signal(signal.SIGINT, handler)
            if caught:
                handler(*caught[0])

    return compile_undisturbed


def raise_cause(error: SystemError) -> None:
    """Raise the interrupt, or the other signal's exception, that a SystemError of Numba's was made from, if it was.

    Where Numba hands back an array that it was given, Python looks at signals, but Numba does not look at what comes
    of that: it returns the array together with the exception, and Python complains of the two.
    """
    if error.__cause__ is not None:
        raise error.__cause__ from None
