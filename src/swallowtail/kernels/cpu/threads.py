"""Split the rows of a batch across Python's threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from operator import or_
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import torch

from swallowtail.kernels.cpu.codegen.counter import CLOSED, add, close

Result = TypeVar("Result")
# (address of x, address of y, number of rows); returns the floating-point flags that were raised
Rows = Callable[[int, int, int], int]

PIECES = 2  # per thread on average: a thread that starts late leaves its second piece to the others
# At least: kernels work on tiles of up to 32 rows, and each piece may leave one half empty.
ROWS_PER_PIECE = 64
# Rotations of single vectors, about 100 µs. Handing over less costs more than it saves.
WORTH_A_THREAD = 2**19

_work: SimpleQueue[Callable[[], None]] = SimpleQueue()
_workers = 0
_lock = threading.Lock()


def share(count: int, rotations: int, worth: int | None = None) -> tuple[int, int]:
    """How many threads are worth it for so many rows, and in how many pieces.

    ``worth`` is how many rotations of single vectors a thread should have; None for those of a loop.
    """
    worth = WORTH_A_THREAD if worth is None else worth
    threads = min(torch.get_num_threads(), max(1, count * rotations // worth), (count + 1) // 2)
    return threads, max(threads, min(threads * PIECES, count // ROWS_PER_PIECE))


def over_rows(work: Callable[[int, int], Result], count: int, rotations: int) -> list[Result]:
    """Call ``work(start, stop)`` on pieces of ``count`` rows, on as many threads as torch uses; results in order.

    A thread that is done with a piece takes the next one, `PIECES` per thread on average. Numba's own parallel loops
    abort the process when two Python threads enter them at once; kernels that release the GIL need only this.

    No thread works on these rows any more when this returns or raises, whatever interrupted it: kernels write through
    addresses that are good only until then.
    """
    if count == 0:
        return []
    threads, pieces = share(count, rotations)
    if threads == 1:
        return [work(0, count)]
    pairs = (count + 1) // 2  # kernels take rows two by two
    bounds = [min(count, 2 * (pairs * i // pieces)) for i in range(pieces)] + [count]
    numbered = iter(enumerate(pairwise(bounds)))  # `next` on it holds the GIL: no piece is taken twice
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    working = np.zeros(1, np.int64)  # how many other threads are; CLOSED is added at the end
    at = working.ctypes.data

    def take_pieces() -> None:
        # Closed is asked first: after an interrupt pieces are left, and a piece once taken has to be done.
        while working[0] < CLOSED and (piece := next(numbered, None)):
            i, (start, stop) = piece
            results[i] = work(start, stop)

    def help_out() -> None:
        try:
            if add(at, 1) < CLOSED:  # otherwise the call may have returned already
                take_pieces()
        except BaseException as error:
            errors.append(error)
        finally:
            add(at, -1)

    _start_workers(threads - 1)
    try:
        for _ in range(threads - 1):
            _work.put(help_out)
        take_pieces()
    finally:
        # One call of compiled code: Python runs signal handlers, which may raise, only after it.
        close(at)
    if errors:
        raise errors[0]
    return [results.pop(i) for i in range(pieces)]  # a thread that comes late may hold on to the dictionary


def rows_on_threads(rows: Rows, x: int, y: int, count: int, row_bytes: int, rotations: int) -> int:
    """``count`` rows at addresses x through a kernel, to addresses y, by `over_rows`. Returns the flags raised."""
    part = lambda start, stop: rows(x + start * row_bytes, y + start * row_bytes, stop - start)
    return reduce(or_, over_rows(part, count, rotations), 0)


def _start_workers(count: int) -> None:
    """See to it that so many threads wait for work."""
    global _workers
    if _workers >= count:
        return
    with _lock:
        if _workers == 0:
            # `over_rows` relies on these being compiled: compiling runs Python, which may raise.
            nobody = np.zeros(1, np.int64)
            add(nobody.ctypes.data, 0)
            close(nobody.ctypes.data)
        while _workers < count:
            threading.Thread(target=_serve, args=(_work,), name="swallowtail", daemon=True).start()
            _workers += 1


def _serve(work: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        work.get()()


def _forget_workers() -> None:
    """A forked child has none of its parent's threads."""
    global _work, _workers, _lock
    _work, _workers, _lock = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
