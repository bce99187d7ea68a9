"""A butterfly's rows on several threads without Python in between: see `_openmp`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, types

from swallowtail.kernels.cpu import openmp as _openmp
from swallowtail.kernels.cpu.butterfly import down, symmetric, up
from swallowtail.kernels.cpu.codegen.flags import OVERFLOW, UNDERFLOW
from swallowtail.kernels.cpu.jit import cfunc
from swallowtail.kernels.cpu.openmp import take

KERNELS: dict[str, Any] = {"down": down, "up": up, "symmetric": symmetric}
NUMBERS = 16  # of a job; threads set the last two to 1 where they leave the range


@lru_cache(maxsize=16)
def _work(family: str, number: type) -> Any:
    """The C function for one family and dtype: takes pieces of the rows of a job until none is left."""
    # A kernel held in the closure would be another in every process, and the code never be found on disk again.
    going_down, going_up = family == "down", family == "up"

    def work(job):
        like = carray(job, NUMBERS)
        _, pieces, x, y, count, n, padded, single, n_single, double, n_double, T, P, S, _, _ = like
        scratch = np.empty((0 if n == padded else 2, padded), number)
        row, pairs = n * scratch.itemsize, (count + 1) // 2  # kernels take rows two by two
        piece = take(job)
        while piece < pieces:
            start, stop = 2 * (pairs * piece // pieces), min(count, 2 * (pairs * (piece + 1) // pieces))
            a, b, rows = x + start * row, y + start * row, stop - start
            if going_down:
                flags = down(a, b, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            elif going_up:
                flags = up(a, b, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            else:
                flags = symmetric(a, b, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            if flags & OVERFLOW:
                like[-2] = 1
            if flags & UNDERFLOW:
                like[-1] = 1
            piece = take(job)

    return cfunc(types.void(types.CPointer(types.int64)), work)


def run(
    family: str, number: np.dtype, threads: int, pieces: int, x: int, y: int, count: int, n: int, padded: int,
    single: int, n_single: int, double: int, n_double: int, T: int, P: int, S: int,
) -> int:  # fmt: skip
    """``count`` rows of n numbers at addresses x, y, as `cpu_butterfly` does them, in so many pieces. Returns the flags
    raised on any of the threads.
    """
    job = np.array(
        [
            0, pieces, x, y, count, n, padded, single, n_single, double, n_double, T, P, S, 0, 0,
        ],
        np.int64,
    )  # fmt: skip
    _openmp.on_threads(_work(family, number.type).address, job, threads)
    return OVERFLOW * int(job[-2]) | UNDERFLOW * int(job[-1])
