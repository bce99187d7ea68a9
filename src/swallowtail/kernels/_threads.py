"""Rows over threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch

Result = TypeVar("Result")
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_lock = threading.Lock()

PATIENCE = 5e-3  # seconds of active waiting for another thread
WORTH_A_THREAD = 2**19  # rotations of single vectors, about 100 µs: less than that costs more to hand over


def over_rows(work: Callable[[int, int], Result], count: int, rotations: int) -> list[Result]:
    """Call ``work(start, stop)`` on even pieces of ``count`` rows, on as many threads as torch uses.

    Numba's own parallel loops abort the process when two Python threads enter them at once; kernels that
    release the GIL need only this.
    """
    if count == 0:
        return []
    threads = min(torch.get_num_threads(), max(1, count * rotations // WORTH_A_THREAD), (count + 1) // 2)
    if threads == 1:
        return [work(0, count)]
    pairs = (count + 1) // 2  # kernels take rows two by two
    bounds = [min(count, 2 * (pairs * i // threads)) for i in range(threads)] + [count]
    futures = [_executor(threads).submit(work, a, b) for a, b in pairwise(bounds[1:])]
    first = work(0, bounds[1])
    return [first, *[_result(future) for future in futures]]


def _result(future: Future[Result]) -> Result:
    """Wait actively for a while: being woken from sleep can take longer than the work (0.5 ms, virtual machines)."""
    deadline = time.perf_counter() + PATIENCE
    while not future.done() and time.perf_counter() < deadline:
        time.sleep(0)  # lets the other thread have the GIL
    return future.result()


def _executor(threads: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < threads - 1:
            _pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="swallowtail")
            _pool_size = threads - 1
        return _pool


def _forget_pool() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
