"""The processor's floating-point exception flags: what tells, at no cost per number, that a kernel left the range.

Every arithmetic instruction raises a sticky flag of its thread when a result overflows, is invalid (∞ − ∞), or is
subnormal and inexact. A kernel clears the flags when it starts and returns those that are raised when it ends.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

OVERFLOW, UNDERFLOW = 1, 2  # bits of what a kernel returns; an invalid operation counts as overflow
# Elsewhere kernels always say that they may have left the range: every call is looked at afterwards.
READABLE = llvm.get_process_triple().startswith("x86_64")

# Bits of the control and status register of SSE and AVX
_INVALID, _OVERFLOW, _UNDERFLOW = 1 << 0, 1 << 3, 1 << 4
_WATCHED, _ALL = _INVALID | _OVERFLOW | _UNDERFLOW, 0b111111
_INT = ir.IntType(32)


def _register(builder: Any, action: str, slot: Any) -> None:
    """Store the register to memory ("stmxcsr") or load it from there ("ldmxcsr")."""
    pointer, name = ir.IntType(8).as_pointer(), f"llvm.x86.sse.{action}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), name)
    builder.call(function, [builder.bitcast(slot, pointer)])


def _read(builder: Any) -> tuple[Any, Any]:
    with builder.goto_entry_block():
        slot = builder.alloca(_INT)
    _register(builder, "stmxcsr", slot)
    return slot, builder.load(slot)


@intrinsic
def clear_flags(typingctx):
    """Clear the flags. Loading the register is slow, so it is done only where one is raised."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if READABLE:
            slot, state = _read(builder)
            raised = builder.icmp_unsigned("!=", builder.and_(state, _INT(_WATCHED)), _INT(0))
            with builder.if_then(raised, likely=False):
                builder.store(builder.and_(state, _INT(~_ALL & 0xFFFFFFFF)), slot)
                _register(builder, "ldmxcsr", slot)
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def raised_flags(typingctx):
    """OVERFLOW, UNDERFLOW, both or 0: what has happened on this thread since `clear_flags`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(types.int64)
        if not READABLE:
            return kind(OVERFLOW | UNDERFLOW)
        _, state = _read(builder)
        result = kind(0)
        for bits, flag in ((_INVALID | _OVERFLOW, OVERFLOW), (_UNDERFLOW, UNDERFLOW)):
            raised = builder.icmp_unsigned("!=", builder.and_(state, _INT(bits)), _INT(0))
            result = builder.or_(result, builder.select(raised, kind(flag), kind(0)))
        return result

    return types.int64(), generate
