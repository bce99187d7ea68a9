"""Compiled work on the threads PyTorch has already.

They look out for work for a while before they sleep, and start on it within microseconds, where a Python thread has to
be woken and to wait for the interpreter: a third of a millisecond altogether, longer than the work may take.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _find() -> Callable[[int, int, int, int], None] | None:
    """GNU's entry into OpenMP, ``(function, argument, threads, flags)``, which importing torch has loaded; LLVM's and
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
    return _enter is not None


def on_threads(address: int, job: np.ndarray, threads: int) -> None:
    """Call the C function at an address with the job, on so many threads at once. The GIL is free meanwhile."""
    assert _enter is not None
    _enter(address, job.ctypes.data, threads, 0)


@intrinsic
def take(typingctx, job):
    """The next number from ``job[0]``, which several threads may ask for."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.atomic_rmw("add", values[0], ir.IntType(64)(1), "monotonic")

    return types.int64(job), generate


def _forget() -> None:
    """A forked child has none of these threads, and would wait for them."""
    global _enter
    _enter = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
