"""A counter, an int64 at an address, of the threads at work on something; and the wait until they are done."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.jit import njit

INT = ir.IntType(64)
CLOSED = 2**32  # added to a counter: no further thread may begin
YIELDS = 2000  # a millisecond or more. Then the wait sleeps: waking up takes longer than most work, 0.5 ms


@intrinsic
def atomic_add(typingctx, address, value):
    """Add to the int64 at an address. Returns what it was before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], INT.as_pointer())
        return builder.atomic_rmw("add", pointer, values[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def add_at(typingctx, pointer, value):
    """Add to the int64 at a pointer. Returns what it was before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.bitcast(values[0], INT.as_pointer())
        return builder.atomic_rmw("add", place, values[1], "seq_cst")

    return types.int64(pointer, types.int64), generate


@njit(cache=True)
def add(address, value):
    """`atomic_add` for Python. A sum of CLOSED or more: the caller must not begin."""
    return atomic_add(address, value)


@njit(nogil=True, cache=True)
def close(address):
    """Let no further thread begin, and wait until those at work are done.

    Python runs signal handlers, which may raise, only after this has returned.
    """
    atomic_add(address, CLOSED)
    spins = 0
    while atomic_add(address, 0) != CLOSED:
        if spins < YIELDS:
            spins += 1
            _yield_core()
        else:
            _sleep_shortly()


@intrinsic
def _yield_core(typingctx):
    """Let another thread that is ready have this core."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _call_c(builder, "SwitchToThread" if sys.platform == "win32" else "sched_yield")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _sleep_shortly(typingctx):
    """Sleep for a millisecond."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if sys.platform == "win32":
            _call_c(builder, "Sleep", 1)
        else:
            _call_c(builder, "usleep", 1000)
        return context.get_dummy_value()

    return types.void(), generate


def _call_c(builder: Any, name: str, *arguments: int) -> None:
    """Call a function of the C library that takes 32-bit integers; its result is not used."""
    number = ir.IntType(32)
    module = builder.module
    function = module.globals.get(name) or ir.Function(
        module, ir.FunctionType(number, [number] * len(arguments)), name
    )
    builder.call(function, [number(value) for value in arguments])
