"""Split rows across the threads PyTorch has already, those of OpenMP.

They spin for a while before they sleep, so they begin within microseconds. Waking a Python thread and handing it the
GIL takes a third of a millisecond, longer than the work may. Compiled code takes the rows; Python sees one call of C,
and runs signal handlers only after all threads are done.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, from_dtype, types

from swallowtail.kernels.cpu.butterfly import from_basis, symmetric, to_basis
from swallowtail.kernels.cpu.codegen.counter import add_at
from swallowtail.kernels.cpu.codegen.flags import OVERFLOW, UNDERFLOW
from swallowtail.kernels.cpu.codegen.shapes import REGISTER_BYTES
from swallowtail.kernels.cpu.jit import cfunc
from swallowtail.kernels.cpu.straight import run_tiles


def _record(*fields: str) -> np.dtype:
    """What the threads share: ``next``, the number of the piece to be taken next, comes first, so that its address is
    the job's; ``overflow`` and ``underflow`` are set to 1 by a thread that left the range.
    """
    return np.dtype([(name, np.int64) for name in ("next", "pieces", *fields, "overflow", "underflow")])


# Addresses and numbers as the kernels of `butterfly` take them, and as `straight.run_tiles` does.
JOB = _record("x", "y", "count", "n", "padded", "single", "n_single", "double", "n_double", "T", "P", "S")
TILE_JOB = _record("x", "y", "count", "n", "code", "coefficients", "outside", "kinds")


def _find() -> Callable[[int, int, int, int], None] | None:
    """GNU's entry into OpenMP, ``(function, argument, threads, flags)``. Importing torch has loaded it; LLVM's and
    Intel's libraries have it as well. None where PyTorch does without.
    """
    try:
        enter = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, TypeError, OSError):
        return None
    enter.argtypes, enter.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    found: Callable[[int, int, int, int], None] = enter
    return found


_enter = _find()


def available() -> bool:
    """Whether PyTorch brought OpenMP, and this process is not a fork: that has none of the threads."""
    return _enter is not None


def on_threads(address: int, job: np.ndarray, threads: int) -> None:
    """Call the C function at an address with the job, on so many threads at once. The GIL is free meanwhile."""
    assert _enter is not None
    _enter(address, job.ctypes.data, threads, 0)


@lru_cache(maxsize=16)
def _worker(family: str, number: type) -> Any:
    """The C function for one family and dtype: takes pieces of the rows of a job until none is left."""
    # Not the kernel itself: in the closure it would give this code another hash in every process, and the disk cache
    # would never find it.
    goes_to_basis, goes_from_basis = family == "to_basis", family == "from_basis"

    def work(pointer):
        job = carray(pointer, 1)[0]
        n, single, n_single, double, n_double = job.n, job.single, job.n_single, job.double, job.n_double
        T, P, S = job.T, job.P, job.S
        scratch = np.empty((0 if n == job.padded else 2, job.padded), number)
        row, pairs = n * scratch.itemsize, (job.count + 1) // 2  # kernels take rows two by two
        piece = add_at(pointer, 1)
        while piece < job.pieces:
            start = 2 * (pairs * piece // job.pieces)
            stop = min(job.count, 2 * (pairs * (piece + 1) // job.pieces))
            x, y, rows = job.x + start * row, job.y + start * row, stop - start
            if goes_to_basis:
                flags = to_basis(x, y, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            elif goes_from_basis:
                flags = from_basis(x, y, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            else:
                flags = symmetric(x, y, rows, n, single, n_single, double, n_double, T, P, S, scratch)
            if flags & OVERFLOW:
                job.overflow = 1
            if flags & UNDERFLOW:
                job.underflow = 1
            piece = add_at(pointer, 1)

    return cfunc(types.void(types.CPointer(from_dtype(JOB))), work)


@lru_cache(maxsize=4)
def _tile_worker(number: type) -> Any:
    def work(pointer):
        job = carray(pointer, 1)[0]
        n, size = job.n, np.empty(0, number).itemsize
        lanes = REGISTER_BYTES // size
        room = np.empty((n + 1) * lanes, number)
        tile = room[-(room.ctypes.data // size) % lanes :]  # from a cache line on
        tiles = -(-job.count // lanes)
        piece = add_at(pointer, 1)
        while piece < job.pieces:
            start = lanes * (tiles * piece // job.pieces)
            stop = min(job.count, lanes * (tiles * (piece + 1) // job.pieces))
            x, y = job.x + start * n * size, job.y + start * n * size
            flags = run_tiles(x, y, stop - start, n, job.code, job.coefficients, job.outside, job.kinds, tile)
            if flags & OVERFLOW:
                job.overflow = 1
            if flags & UNDERFLOW:
                job.underflow = 1
            piece = add_at(pointer, 1)

    return cfunc(types.void(types.CPointer(from_dtype(TILE_JOB))), work)


def run(family: str, number: np.dtype, threads: int, pieces: int, *shared: int) -> int:
    """Rows through a kernel of `butterfly`, in so many pieces. ``shared`` are the fields of JOB from x to S.

    Returns the flags raised on any of the threads.
    """
    return _done(_worker(family, number.type), JOB, threads, pieces, shared)


def run_tile_job(number: np.dtype, threads: int, pieces: int, *shared: int) -> int:
    """The same for vectors through machine code; ``shared`` are the fields of TILE_JOB from x to kinds."""
    return _done(_tile_worker(number.type), TILE_JOB, threads, pieces, shared)


def _done(worker: Any, record: np.dtype, threads: int, pieces: int, shared: tuple[int, ...]) -> int:
    job = np.array([(0, pieces, *shared, 0, 0)], record)
    on_threads(worker.address, job, threads)
    return OVERFLOW * int(job["overflow"][0]) | UNDERFLOW * int(job["underflow"][0])


def _forget() -> None:
    """A forked child has none of these threads, and would wait for them."""
    global _enter
    _enter = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
