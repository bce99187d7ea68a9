"""Machine code for a sequence of rotations: AVX-512 on x86-64, one instruction after another without a branch.

A *row* holds one coordinate of W vectors (a register wide), or of a single one (a number). Its place in memory is
fixed. The assembler reads a program of steps on rows, keeps as many rows in registers as there are, and writes the
instructions. LLVM would take seconds for the same program: it has to find the registers that we know already.

    ROTATE   x_i ← x_i + T_i·x_j, x_j ← x_j + T_j·x_i (old)      coefficients T_i, T_j
    PLAIN    x_i ← P_i·x_i + T_i·x_j, x_j ← P_j·x_j + T_j·x_i    coefficients P_i, P_j, T_i, T_j
    SCALE    x_i ← d·x_i                                         coefficient d

The code is a function of two addresses: of the rows (rdi), and of the coefficients in the program's order (rsi). A row
that is needed and not in a register is loaded; the row whose next use is farthest away makes room for it. Results have
the same bits as those of `rows.rotate_rows` and `rotate_rows_plain`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.jit import njit

ROTATE, PLAIN, SCALE = range(3)
COEFFICIENTS = np.array([2, 4, 1])  # of each step
MOST_BYTES = 160  # of one step, with what it loads and stores

LOAD, STORE, SPREAD, TIMES_PLUS, PLUS_TIMES, TIMES = range(6)
# What an instruction is made of: opcode map, prefix, W bit, opcode, length and broadcast bits (Intel's manual, vol. 2)
MAP, PREFIX, WIDE, OPCODE, LENGTH, BROADCAST = range(6)


def _forms(double: bool, scalar: bool) -> list[list[int]]:
    """The instructions above for one type of number, on whole registers or on their first number."""
    w, length, spread = int(double), 0 if scalar else 2, 0 if scalar else 1
    arithmetic = (3 if double else 2) if scalar else int(double)  # prefix of add and multiply
    one = int(scalar)  # fused multiply-adds of single numbers have odd opcodes
    load = [1, arithmetic, w, 0x10, length, 0]
    return [
        load,
        [1, arithmetic, w, 0x11, length, 0],
        load if scalar else [2, 1, w, 0x19 if double else 0x18, length, 0],
        [2, 1, w, 0xA8 + one, length, 0],  # a ← a·b + c
        [2, 1, w, 0xB8 + one, length, spread],  # a ← a + b·memory
        [1, arithmetic, w, 0x59, length, spread],  # a ← b·memory
    ]


FORMS = np.array([[_forms(double, scalar) for scalar in (False, True)] for double in (False, True)], np.int64)

RSI, RDI = 6, 7
# Registers that a caller does not mind. Each points into the middle of REACH rows.
BASES = np.array([RDI, 0, 1, 2, 8, 9, 10, 11])
REACH = 256  # one byte of displacement, in units of what is loaded
REGISTERS = 32
NEVER = np.iinfo(np.int64).max


@njit(nogil=True, cache=True)
def _number(out, at, value, size):
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 255
    return at + size


@njit(nogil=True, cache=True)
def _instruction(out, at, form, a, b, c, base, displacement, unit):
    """One EVEX instruction on registers a, b and c, or with memory in place of c if that is negative."""
    outer = (~c >> 4 & 1) << 6 | (~c >> 3 & 1) << 5 if c >= 0 else 1 << 6 | (~base >> 3 & 1) << 5
    out[at] = 0x62
    out[at + 1] = (~a >> 3 & 1) << 7 | outer | (~a >> 4 & 1) << 4 | form[MAP]
    out[at + 2] = form[WIDE] << 7 | (~b & 15) << 3 | 4 | form[PREFIX]
    out[at + 3] = form[LENGTH] << 5 | form[BROADCAST] << 4 | (~b >> 4 & 1) << 3
    out[at + 4] = form[OPCODE]
    at += 5
    if c >= 0:
        out[at] = 0xC0 | (a & 7) << 3 | (c & 7)
        return at + 1
    short = displacement % unit == 0 and -128 <= displacement // unit < 128
    out[at] = (0x40 if short else 0x80) | (a & 7) << 3 | (base & 7)
    return _number(out, at + 1, displacement // unit if short else displacement, 1 if short else 4)


@njit(nogil=True, cache=True)
def _add(out, at, register, value):
    """register ← register + value."""
    out[at], out[at + 1], out[at + 2] = 0x48, 0x81, 0xC0 | register
    return _number(out, at + 3, value, 4)


@njit(nogil=True, cache=True)
def _begin(out, n, row_bytes):
    """Let every base point into the middle of its rows."""
    at = _add(out, 0, RDI, REACH // 2 * row_bytes)
    for g in range(1, min(len(BASES), -(-n // REACH))):
        base = BASES[g]
        out[at], out[at + 1], out[at + 2] = 0x48 | (base >> 3) << 2, 0x8D, 0x80 | (base & 7) << 3 | RDI
        at = _number(out, at + 3, g * REACH * row_bytes, 4)
    return at


@njit(nogil=True, cache=True)
def _move(out, at, form, register, row, row_bytes):
    """Load or store a row."""
    g = row // REACH
    if g >= len(BASES):
        g = 0
    return _instruction(
        out, at, form, register, 0, -1, BASES[g], (row - g * REACH - REACH // 2) * row_bytes, row_bytes
    )


@njit(nogil=True, cache=True)
def _next_uses(first, second, n):
    """For both rows of each step the number of the next step that uses them."""
    last, following = np.full(n, NEVER), np.empty((len(first), 2), np.int64)
    for k in range(len(first) - 1, -1, -1):
        following[k, 0], following[k, 1] = last[first[k]], last[second[k]]
        last[first[k]] = last[second[k]] = k
    return following


@njit(nogil=True, cache=True)
def assemble(kind, first, second, n, double, scalar, out):
    """Write the code of a program into ``out``. Returns its size, and how many rows it loads.

    Args:
        kind: for each step ROTATE, PLAIN or SCALE.
        first: the row i of each step.
        second: the row j; equal to i in steps with one row.
        n: number of rows.
        double: whether numbers are float64.
        scalar: whether a row is a single number.
        out: room, MOST_BYTES for each step and as many besides.
    """
    forms, number_bytes = FORMS[int(double), int(scalar)], 8 if double else 4
    row_bytes = number_bytes if scalar else 64
    following = _next_uses(first, second, n)
    free, n_free = np.arange(REGISTERS), REGISTERS
    place, held = np.full(n, -1), np.full(REGISTERS, -1)  # the register of a row, and the row of a register
    due = np.zeros(n, np.int64)  # next use of the rows in registers
    at, coefficient, pointed, loads = _begin(out, n, row_bytes), 0, 0, 0
    for k in range(len(kind)):
        i, j = first[k], second[k]
        due[i] = due[j] = -1  # needed now
        for row in (i, j):
            if place[row] >= 0:
                continue
            if n_free < 2:  # one is always left for results
                farthest = -1
                for r in range(REGISTERS):
                    if held[r] >= 0 and (farthest < 0 or due[held[r]] > due[held[farthest]]):
                        farthest = r
                at = _move(out, at, forms[STORE], farthest, held[farthest], row_bytes)
                place[held[farthest]], held[farthest] = -1, -1
                free[n_free] = farthest
                n_free += 1
            n_free -= 1
            place[row] = free[n_free]
            held[place[row]] = row
            at = _move(out, at, forms[LOAD], place[row], row, row_bytes)
            loads += 1
        due[i], due[j] = following[k]
        if coefficient + 4 - pointed > REACH // 2:
            at = _add(out, at, RSI, (coefficient + REACH // 2 - pointed) * number_bytes)
            pointed = coefficient + REACH // 2
        c, unit = (coefficient - pointed) * number_bytes, number_bytes
        coefficient += COEFFICIENTS[kind[k]]
        a, b, t = place[i], place[j], free[n_free - 1]
        if kind[k] == SCALE:
            at = _instruction(out, at, forms[TIMES], a, a, -1, RSI, c, unit)
        else:
            if kind[k] == ROTATE:
                at = _instruction(out, at, forms[SPREAD], t, 0, -1, RSI, c + unit, unit)
                at = _instruction(out, at, forms[TIMES_PLUS], t, a, b, 0, 0, 1)
            else:
                at = _instruction(out, at, forms[TIMES], t, b, -1, RSI, c + unit, unit)
                at = _instruction(out, at, forms[PLUS_TIMES], t, a, -1, RSI, c + 3 * unit, unit)
                at = _instruction(out, at, forms[TIMES], a, a, -1, RSI, c, unit)
                c += 2 * unit
            at = _instruction(out, at, forms[PLUS_TIMES], a, b, -1, RSI, c, unit)
            place[j], held[t], held[b], free[n_free - 1] = t, j, -1, b  # x_j is in t now
        for row in (i, j):
            if due[row] == NEVER and place[row] >= 0:
                at = _move(out, at, forms[STORE], place[row], row, row_bytes)
                held[place[row]], free[n_free] = -1, place[row]
                n_free, place[row] = n_free + 1, -1
    # Clear the upper halves of registers, for code that uses SSE; return.
    for byte in (0xC5, 0xF8, 0x77, 0xC3):
        out[at] = byte
        at += 1
    return at, loads


@intrinsic
def call(typingctx, code, rows, coefficients):
    """Call the code at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [number] * 2)
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate
