"""Products of dense matrices of some hundred rows: tiles of the result stay in registers.

For matrices of this size PyTorch's and NumPy's products reach a third to a half of what the processor can do, and may
start threads. The left factor may have any strides, so transposed matrices and every other column of one cost nothing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.rows import INT, Rows, codelet
from swallowtail.kernels.cpu.codegen.shapes import REGISTER_BYTES, as_row
from swallowtail.kernels.cpu.codegen.squares import square_in
from swallowtail.kernels.cpu.jit import njit

# A tile has so many rows, and registers per row. With AVX2 there are 16 registers, else 32.
ROWS, REGISTERS = 6, 2 if REGISTER_BYTES == 32 else 4
NARROW = 4  # numbers per row of a tile, where the whole matrix is narrower than a register


def _tile(rows: int, registers: int, narrow: int | None = None) -> Any:
    """A codelet: a tile of the result, ``rows`` × ``registers``, or ``rows`` × ``narrow`` numbers."""

    @intrinsic
    def product(typingctx, like, a, down, along, b, stride, c, length, inner):
        def emit(
            r: Rows, a: Any, down: Any, along: Any, b: Any, stride: Any, c: Any, length: Any, inner: Any
        ) -> None:
            part = _Part(r, narrow or r.w)
            before, loop, end = r.b.block, r.b.append_basic_block(), r.b.append_basic_block()
            lines = [r.b.add(a, r.b.mul(down, INT(i))) for i in range(rows)]
            r.b.branch(loop)
            r.b.position_at_end(loop)
            # What changes: steps left, bytes into the rows of the left factor, the row of the right one, sums.
            left, into, row = (r.b.phi(INT) for _ in range(3))
            sums = [[r.b.phi(part.kind) for _ in range(registers)] for _ in range(rows)]
            right = [part.load(row, j) for j in range(registers)]
            new = []
            for line, own in zip(lines, sums, strict=True):
                x = part.splat(r.number(r.b.add(line, into)))
                new.append([r.fma(x, y, total) for y, total in zip(right, own, strict=True)])
            changes = [(left, inner, r.b.sub(left, INT(1))), (into, INT(0), r.b.add(into, along))]
            changes.append((row, b, r.b.add(row, stride)))
            for own, after in zip(sums, new, strict=True):
                changes += [(total, part.zero, then) for total, then in zip(own, after, strict=True)]
            for phi, first, then in changes:
                phi.add_incoming(first, before)
                phi.add_incoming(then, loop)
            r.b.cbranch(r.b.icmp_signed(">", left, INT(1)), loop, end)
            r.b.position_at_end(end)
            for i, own in enumerate(new):
                for j, value in enumerate(own):
                    part.store(value, r.b.add(c, r.b.mul(length, INT(i))), j)

        return types.void(like, *[types.int64] * 8), codelet(emit)

    return product


class _Part:
    """Loads and stores of a register, or of the first few numbers of one."""

    def __init__(self, r: Rows, count: int) -> None:
        self.r, self.count = r, count
        self.kind = ir.VectorType(r.vector.element, count)
        self.zero = ir.Constant(self.kind, [0.0] * count)

    def _place(self, base: Any, number: int) -> Any:
        address = self.r.offset(base, INT(number * self.count))
        return self.r.b.inttoptr(address, self.kind.as_pointer())

    def load(self, base: Any, number: int) -> Any:
        value = self.r.b.load(self._place(base, number))
        value.align = self.r.bits // 8
        return value

    def store(self, value: Any, base: Any, number: int) -> None:
        self.r.b.store(value, self._place(base, number)).align = self.r.bits // 8

    def splat(self, scalar: Any) -> Any:
        first = self.r.b.insert_element(ir.Constant(self.kind, ir.Undefined), scalar, ir.IntType(32)(0))
        return self.r.shuffle(first, first, [0] * self.count)


_wide, _double, _single = _tile(ROWS, REGISTERS), _tile(ROWS, 2), _tile(ROWS, 1)
_few, _one = _tile(ROWS, 1, NARROW), _tile(ROWS, 1, 1)
_row, _row_few, _row_one = _tile(1, 1), _tile(1, 1, NARROW), _tile(1, 1, 1)


@njit(inner=True)
def multiply(A, B, C):
    """C ← A B. A row of B and of C lies in one piece; A has any strides, and C is neither of the two.

    Tiles at the lower and the right edge overlap others, which compute the same bits.
    """
    if B.size == 0:
        C[:] = 0
        return
    (down, along), stride, length = A.strides, B.strides[0], C.strides[0]
    like = as_row(C.ctypes.data, 1, C)  # one type for all layouts: the loops are compiled once
    a, b, c = A.ctypes.data, B.ctypes.data, C.ctypes.data
    _multiply(like, a, down, along, b, stride, c, length, len(A), len(B), B.shape[1])


@njit(inner=True)
def _multiply(like, a, down, along, b, stride, c, length, m, inner, n):
    size, lanes = like.itemsize, REGISTER_BYTES // like.itemsize
    column = 0
    while column < n:
        width = REGISTERS * lanes
        if n - column < width:
            width = 2 * lanes if n - column >= 2 * lanes else lanes
        if n < width:
            width = NARROW if n >= NARROW else 1
        at = min(column, n - width) * size
        row = 0
        while row < m:
            rows = ROWS if m >= ROWS else 1
            first = min(row, m - rows)
            x, y, z = a + first * down, b + at, c + first * length + at
            if rows == ROWS:
                if width == REGISTERS * lanes:
                    _wide(like, x, down, along, y, stride, z, length, inner)
                elif width == 2 * lanes:
                    _double(like, x, down, along, y, stride, z, length, inner)
                elif width == lanes:
                    _single(like, x, down, along, y, stride, z, length, inner)
                elif width == NARROW:
                    _few(like, x, down, along, y, stride, z, length, inner)
                else:
                    _one(like, x, down, along, y, stride, z, length, inner)
            elif width >= lanes:
                for k in range(0, width * size, REGISTER_BYTES):
                    _row(like, x, down, along, y + k, stride, z + k, length, inner)
            elif width == NARROW:
                _row_few(like, x, down, along, y, stride, z, length, inner)
            else:
                _row_one(like, x, down, along, y, stride, z, length, inner)
            row += rows
        column += width


@intrinsic
def _add_multiple(typingctx, like, target, x, source):
    """A register's numbers at one address become those plus x times those at another."""

    def emit(r: Rows, target: Any, x: Any, source: Any) -> None:
        r.store(r.fma(r.splat(x), r.load(source), r.load(target)), target)

    return types.void(like, types.int64, like.dtype, types.int64), codelet(emit)


@njit(inner=True)
def add_outer(A, x, y):
    """A ← A + x yᵀ, where A and y have whole registers of columns, and rows in one piece."""
    like = as_row(A.ctypes.data, 1, A)
    for k in range(0, len(y) * A.itemsize, REGISTER_BYTES):
        at, source = A.ctypes.data + k, y.ctypes.data + k
        for i in range(len(A)):
            _add_multiple(like, at, x[i], source)
            at += A.strides[0]


@njit(inner=True)
def transpose(A, B):
    """B ← Aᵀ. A row of both lies in one piece."""
    m, n = A.shape
    lanes = REGISTER_BYTES // B.itemsize
    if m < lanes or n < lanes:
        for i in range(m):
            for j in range(n):
                B[j, i] = A[i, j]
        return
    size, stride, length = A.itemsize, A.strides[0], B.strides[0]
    for row in range(0, m, lanes):
        i = min(row, m - lanes)
        for column in range(0, n, lanes):
            j = min(column, n - lanes)
            source = A.ctypes.data + i * stride + j * size
            target = B.ctypes.data + j * length + i * size
            square_in(B, source, stride // size, lanes - 1, target, length // size, target)
