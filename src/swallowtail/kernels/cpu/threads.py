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

PIECES = 2  # of work for each thread, on average
ROWS_A_PIECE = 64  # at least; fewer would leave lanes idle
PATIENCE = 5e-3  # seconds of active waiting for another thread
WORTH_A_THREAD = 2**19  # rotations of single vectors, about 100 µs: less than that costs more to hand over


def share(count: int, rotations: int, pieces: int = PIECES) -> tuple[int, int]:
    """How many threads are worth it for so many rows, and in how many pieces."""
    threads = min(torch.get_num_threads(), max(1, count * rotations // WORTH_A_THREAD), (count + 1) // 2)
    return threads, max(threads, min(threads * pieces, count // ROWS_A_PIECE))


def over_rows(
    work: Callable[[int, int], Result], count: int, rotations: int, pieces: int = PIECES
) -> list[Result]:
    """Call ``work(start, stop)`` on pieces of ``count`` rows, on as many threads as torch uses; results in order.

    Threads take the next piece when they are done with one, ``pieces`` a thread on average: a thread can take as long
    to wake up as the work does. Numba's own parallel loops abort the process when two Python threads enter them at
    once; kernels that release the GIL need only this.
    """
    if count == 0:
        return []
    threads, pieces = share(count, rotations, pieces)
    if threads == 1:
        return [work(0, count)]
    pairs = (count + 1) // 2  # kernels take rows two by two
    bounds = [min(count, 2 * (pairs * i // pieces)) for i in range(pieces)] + [count]
    numbered = iter(enumerate(pairwise(bounds)))  # `next` on it holds the GIL: no piece is taken twice
    results: dict[int, Result] = {}

    def take() -> None:
        for i, (a, b) in numbered:
            results[i] = work(a, b)

    futures = [_executor(threads).submit(take) for _ in range(threads - 1)]
    try:
        take()
    finally:  # also after an error or Ctrl-C: kernels hold addresses that are good only until this returns
        for future in futures:
            if not future.cancel():  # a thread that has not begun by now has nothing left to do
                _wait(future)
    return [results[i] for i in range(pieces)]


def _wait(future: Future[None]) -> None:
    """Wait actively for a while: being woken from sleep can take longer than the work (0.5 ms, virtual machines)."""
    deadline = time.perf_counter() + PATIENCE
    while not future.done() and time.perf_counter() < deadline:
        time.sleep(0)  # lets the other thread have the GIL
    future.result()


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
