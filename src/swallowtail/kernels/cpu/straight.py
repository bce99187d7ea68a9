"""Chosen pairs as machine code of their own: the fastest way, for wirings that are used often.

A loop over rotations loads and stores two rows for each, and its processor waits for indices. Here the wiring itself
becomes code (`codegen.x86`): rows stay in registers from one rotation to the next, and the addresses are part of the
instructions. Coefficients are read from memory, so new angles need no new code.

Making the code takes milliseconds (`promotion` says when that is worth it). Results have the same bits as the loop's.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import lru_cache
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

from swallowtail.kernels.cpu.codegen import shapes as simd
from swallowtail.kernels.cpu.codegen import x86
from swallowtail.kernels.cpu.codegen.flags import clear_flags, raised_flags
from swallowtail.kernels.cpu.codegen.rows import integer
from swallowtail.kernels.cpu.codegen.shapes import as_row
from swallowtail.kernels.cpu.codegen.squares import scale_square, scaled_square_in, square_in, square_out
from swallowtail.kernels.cpu.jit import njit
from swallowtail.kernels.cpu.ordering import in_registers
from swallowtail.wiring import Pairs

HELD = x86.REGISTERS - 2  # rows: one register is for results, and one for the row that comes next
# System V's calling convention; registers of 512 bits.
POSSIBLE = (
    llvm.get_process_triple().startswith("x86_64")
    and sys.platform in ("linux", "darwin")
    and simd.REGISTER_BYTES == 64
)
DENSE, MIXED, BARE = range(3)  # a square of W coordinates of which rotations touch all, some, or none


class Program(NamedTuple):
    """Steps as `x86.assemble` reads them, and where their coefficients come from."""

    kind: np.ndarray
    first: np.ndarray
    second: np.ndarray
    source: np.ndarray  # places in (T, P, diagonal), laid end to end


class Code:
    """Executable memory with the code of one program."""

    def __init__(self, machine_code: np.ndarray) -> None:
        size = -(-len(machine_code) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory[: len(machine_code)] = machine_code.tobytes()
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(self.address, size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "memory cannot be made executable")


def program_of(wiring: Pairs, action: str, plain: bytes) -> Program:
    """The steps of one action: "to_basis", "from_basis", "symmetric" or "unscaled".

    The diagonal multiplies the rows that rotations touch. Others do not need to come into registers; the kernels below
    multiply them on their way.

    ``plain`` says for each rotation whether it is, as bytes of bool.
    """
    order, flags = _order(wiring), np.frombuffer(plain, np.bool_)
    return Program(*_steps(wiring.indices, order, flags, wiring.n, *_PARTS[action]))


@lru_cache(maxsize=64)
def _order(wiring: Pairs) -> np.ndarray:
    order: np.ndarray = in_registers(wiring.indices, wiring.n, HELD)
    return order


# Whether an action goes to the basis, whether it multiplies by the diagonal there, and whether it comes back
_PARTS = {
    "to_basis": (True, True, False),
    "from_basis": (False, True, True),
    "symmetric": (True, True, True),
    "unscaled": (True, False, False),
}


@njit(nogil=True, cache=True)
def _steps(pairs, order, plain, n, to_basis, scaled, from_basis):
    """Rotations in the given order, the diagonal where a row is at the basis, rotations in the opposite order."""
    K, walks = len(pairs), int(to_basis) + int(from_basis)
    most = K * walks + n
    kind, first, second = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    source = np.empty((2 * K + 2 * plain.sum()) * walks + n, np.int32)
    step = at = 0
    left = np.zeros(n, np.int64)  # rotations that a row still has before it is at the basis
    if to_basis:
        for k in range(K):
            left[pairs[k, 0]] += 1
            left[pairs[k, 1]] += 1
    waits = np.full(n, scaled)  # for its factor
    for back in range(2):
        if not (from_basis if back else to_basis):
            continue
        for position in range(K):
            k = order[K - 1 - position if back else position]
            if not to_basis:  # it starts at the basis
                step, at = _scale(kind, first, second, source, step, at, pairs[k], left, waits, 4 * K)
            kind[step], first[step], second[step] = (
                x86.PLAIN if plain[k] else x86.ROTATE,
                pairs[k, 0],
                pairs[k, 1],
            )
            step += 1
            if plain[k]:
                source[at], source[at + 1] = 2 * K + 2 * k, 2 * K + 2 * k + 1
                at += 2
            source[at], source[at + 1] = 2 * k + back, 2 * k + 1 - back
            at += 2
            left[pairs[k, 0]] -= 1
            left[pairs[k, 1]] -= 1
            if to_basis:
                step, at = _scale(kind, first, second, source, step, at, pairs[k], left, waits, 4 * K)
    return kind[:step], first[:step], second[:step], source[:at]


@njit(nogil=True, cache=True)
def _scale(kind, first, second, source, step, at, rows, left, waits, diagonal):
    """Add a step for each of these rows that is at the basis and waits for its factor."""
    for row in rows:
        if waits[row] and left[row] == 0:
            kind[step], first[step], second[step], source[at] = x86.SCALE, row, row, diagonal + row
            step, at, waits[row] = step + 1, at + 1, False
    return step, at


def kinds_of_squares(touched: np.ndarray, width: int) -> np.ndarray:
    """For each whole square of so many coordinates DENSE, MIXED or BARE."""
    inside = touched[: len(touched) // width * width].reshape(-1, width)
    return np.where(inside.all(1), DENSE, np.where(inside.any(1), MIXED, BARE)).astype(np.int64)


@lru_cache(maxsize=32)
def code_of(wiring: Pairs, action: str, plain: bytes, double: bool, scalar: bool) -> tuple[Code, np.ndarray]:
    """The code of an action, and where its coefficients come from."""
    program = program_of(wiring, action, plain)
    room = np.empty(x86.MOST_BYTES * (len(program.kind) + 1), np.uint8)
    size, _ = x86.assemble(program.kind, program.first, program.second, wiring.n, double, scalar, room)
    return Code(room[:size]), program.source


@njit(nogil=True, cache=True)
def run_vector(x, y, n, code, coefficients, outside, like):
    """One vector of n numbers from address x to address y, through code for single vectors. Returns the flags raised.

    The other arguments are those of `run_tiles`; ``like`` is an array of the numbers' dtype.
    """
    clear_flags()
    source, factors, target = as_row(x, n, like), as_row(outside, n, like), as_row(y, n, like)
    for i in range(n):
        target[i] = source[i] * factors[i]
    x86.call(code, y, coefficients)
    return raised_flags()


@njit(nogil=True, cache=True)
def run_tiles(x, y, count, n, code, coefficients, outside, kinds, tile):
    """``count`` vectors of n ≥ W numbers from address x to address y, W at a time. Returns the flags raised.

    Args:
        x: address of the vectors.
        y: address of the results.
        count: how many vectors.
        n: their length.
        code: address of the code.
        coefficients: address of what it reads.
        outside: address of n factors, for coordinates that no rotation touches; 1 for the others.
        kinds: address of a number for each square of W coordinates: DENSE, MIXED or BARE.
        tile: room for n rows of W numbers, on a cache line.
    """
    clear_flags()
    lanes, vector, rows = simd.REGISTER_BYTES // tile.itemsize, n * tile.itemsize, tile.ctypes.data
    _exchange(0, 0, -1, x, min(count, lanes) - 1, n, rows, outside, kinds, tile)
    for v in range(0, count, lanes):
        x86.call(code, rows, coefficients)
        now, then = v * vector, (v + lanes) * vector
        last, following = min(count - v, lanes) - 1, min(count - v - lanes, lanes) - 1
        _exchange(x + now, y + now, last, x + then, following, n, rows, outside, kinds, tile)
    return raised_flags()


@njit(nogil=True, cache=True)
def _exchange(x, y, last, next_x, next_last, n, tile, outside, kinds, like):
    """Results out of the tile and the next vectors into it: its rows are loaded once for both.

    ``last`` is the number of the last vector that goes out, ``next_last`` of the last one that goes in; −1 if there is
    none.
    """
    size = like.itemsize
    lanes = simd.REGISTER_BYTES // size
    row = lanes * size
    if n % lanes and last >= 0:  # the last square overlaps the one before it: out first, in last
        f = n - lanes
        square_out(like, y + f * size, n, last, tile + f * row, lanes, 0)
    for f in range(0, n - lanes + 1, lanes):
        kind = integer(kinds + f // lanes * 8)
        if kind == BARE:
            if last >= 0:
                scale_square(like, x + f * size, y + f * size, n, last, outside + f * size)
            continue
        if last >= 0:
            square_out(like, y + f * size, n, last, tile + f * row, lanes, 0)
        if next_last >= 0 and kind == MIXED:
            scaled_square_in(like, next_x + f * size, n, next_last, tile + f * row, lanes, outside + f * size)
        elif next_last >= 0:
            square_in(like, next_x + f * size, n, next_last, tile + f * row, lanes, 0)
    if n % lanes and next_last >= 0:
        f = n - lanes
        scaled_square_in(like, next_x + f * size, n, next_last, tile + f * row, lanes, outside + f * size)
