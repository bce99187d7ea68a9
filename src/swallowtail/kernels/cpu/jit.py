"""numba.njit and numba.cfunc, with a disk cache that several processes may fill at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As ``numba.njit(**options)``.

    Numba numbers the files of a function's cache 1, 2, … by an index it reads before and writes after it compiled. Two
    processes that compile for different types at the same time both write file 1, and the index may end up naming one
    process's types and the other's code: from then on every call fails. Here a file's name has the number of the
    process in it, so an index always names the files of the process that wrote it.
    """
    return lambda function: _with_own_files(numba.njit(**options)(function))


def _with_own_files(compiled: Any) -> Any:
    files = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if files is not None:
        name = files._data_name
        files._data_name = lambda number: name(1000 * os.getpid() + number)
    return compiled


def cfunc(signature: Any, function: Callable[..., Any]) -> Any:
    """As ``numba.cfunc(signature, cache=True)(function)``."""
    compiled = CFunc(function, normalize_signature(signature), locals={}, options={"nopython": True})
    compiled.enable_caching()
    _with_own_files(compiled).compile()
    return compiled
