"""LLVM codelets for data-chosen pairs: on a feature-major tile a rotation combines two rows of lanes.

Any two rows cost the same, which is what pairs without a pattern need. `squares` fills and empties tiles.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.shapes import lanes

ROW_REGISTERS = 2  # registers per row: two hide the cost of fetching a rotation's indices and coefficients
INT = ir.IntType(64)


def multiplied_and_added(builder: Any, *values: Any) -> Any:
    """The first two multiplied, the third added: rounded once where the processor can."""
    kind = values[0].type
    vector = isinstance(kind, ir.VectorType)
    number = "f32" if (kind.element if vector else kind) == ir.FloatType() else "f64"
    name = f"llvm.fmuladd.{f'v{kind.count}' if vector else ''}{number}"
    fused = builder.module.globals.get(name)
    if fused is None:
        fused = ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(fused, values)


class Rows:
    """Loads, stores and arithmetic on registers of one dtype."""

    def __init__(self, builder: Any, bits: int) -> None:
        self.b, self.bits, self.w = builder, bits, lanes(bits)
        scalar = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.vector = ir.VectorType(scalar, self.w)
        self.undefined = ir.Constant(self.vector, ir.Undefined)

    def offset(self, base: Any, elements: Any) -> Any:
        return self.b.add(base, self.b.mul(elements, INT(self.bits // 8)))

    def load(self, address: Any) -> Any:
        value = self.b.load(self.b.inttoptr(address, self.vector.as_pointer()))
        value.align = self.bits // 8
        return value

    def store(self, value: Any, address: Any) -> None:
        self.b.store(value, self.b.inttoptr(address, self.vector.as_pointer())).align = self.bits // 8

    def number(self, address: Any) -> Any:
        return self.b.load(self.b.inttoptr(address, self.vector.element.as_pointer()))

    def shuffle(self, a: Any, b: Any, lanes_: list[int]) -> Any:
        return self.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes_)), lanes_))

    def splat(self, scalar: Any) -> Any:
        first = self.b.insert_element(self.undefined, scalar, ir.IntType(32)(0))
        return self.shuffle(first, self.undefined, [0] * self.w)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.b.fmul(a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c, this product and no other rounded together with the sum where the processor can."""
        return multiplied_and_added(self.b, a, b, c)


def codelet(emit: Any, kind: type[Rows] = Rows) -> Any:
    """Wrap ``emit(rows, *values)`` as the code generator of an intrinsic whose first argument is ``like``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        result = emit(kind(builder, signature.args[0].dtype.bitwidth), *values[1:])
        return context.get_dummy_value() if result is None else result

    return generate


@intrinsic
def integer(typingctx, address):
    """The int64 at an address: an index into an array would first be asked whether it is negative."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(builder.inttoptr(values[0], INT.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def number(typingctx, like, address):
    """The number at an address, of the dtype of ``like``."""

    def emit(r: Rows, address: Any) -> Any:
        return r.number(address)

    return like.dtype(like, types.int64), codelet(emit)


@intrinsic
def multiply_add(typingctx, a, b, c):
    """a·b + c as the vector code does it, so with the same bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return multiplied_and_added(builder, *values)

    return a(a, a, a), generate


@intrinsic
def rotate_rows(typingctx, like, row_i, row_j, t_i, t_j):
    """Fast Givens on two rows: x_i ← x_i + t_i·x_j and x_j ← x_j + t_j·x_i (old)."""

    def emit(r: Rows, row_i: Any, row_j: Any, t_i: Any, t_j: Any) -> None:
        t_i, t_j = r.splat(t_i), r.splat(t_j)
        for v in range(ROW_REGISTERS):
            at_i, at_j = r.offset(row_i, INT(v * r.w)), r.offset(row_j, INT(v * r.w))
            a, b = r.load(at_i), r.load(at_j)
            r.store(r.fma(t_i, b, a), at_i)
            r.store(r.fma(t_j, a, b), at_j)

    return types.void(like, types.int64, types.int64, like.dtype, like.dtype), codelet(emit)


@intrinsic
def rotate_three_rows(typingctx, like, row_i, row_j, row_k, t_i, t_j, s_i, s_k):
    """Two fast rotations that share row i: (i, j) by t, then (i, k) by s."""

    def emit(r: Rows, row_i: Any, row_j: Any, row_k: Any, *scalars: Any) -> None:
        t_i, t_j, s_i, s_k = (r.splat(s) for s in scalars)
        for v in range(ROW_REGISTERS):
            at_i, at_j, at_k = (r.offset(row, INT(v * r.w)) for row in (row_i, row_j, row_k))
            a, b, c = r.load(at_i), r.load(at_j), r.load(at_k)
            middle = r.fma(t_i, b, a)
            r.store(r.fma(t_j, a, b), at_j)
            r.store(r.fma(s_i, c, middle), at_i)
            r.store(r.fma(s_k, middle, c), at_k)

    return types.void(like, *[types.int64] * 3, *[like.dtype] * 4), codelet(emit)


@intrinsic
def prefetch(typingctx, like, read, write):
    """Ask for the line at one address, to be read, and at another, to be written; they need not exist."""

    def emit(r: Rows, *addresses: Any) -> None:
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = r.b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for writes, address in enumerate(addresses):
            r.b.call(ask, [r.b.inttoptr(address, byte), number(writes), number(2), number(1)])

    return types.void(like, types.int64, types.int64), codelet(emit)


@intrinsic
def rotate_rows_plain(typingctx, like, row_i, row_j, t_i, t_j, p_i, p_j):
    """Plain step on two rows: x_i ← p_i·x_i + t_i·x_j and x_j ← p_j·x_j + t_j·x_i (old)."""

    def emit(r: Rows, row_i: Any, row_j: Any, *scalars: Any) -> None:
        t_i, t_j, p_i, p_j = (r.splat(s) for s in scalars)
        for v in range(ROW_REGISTERS):
            at_i, at_j = r.offset(row_i, INT(v * r.w)), r.offset(row_j, INT(v * r.w))
            a, b = r.load(at_i), r.load(at_j)
            r.store(r.fma(t_i, b, r.multiply(p_i, a)), at_i)
            r.store(r.fma(t_j, a, r.multiply(p_j, b)), at_j)

    return types.void(like, types.int64, types.int64, *[like.dtype] * 4), codelet(emit)


@intrinsic
def scale_row(typingctx, like, row, factor):
    """x ← factor·x on one row."""

    def emit(r: Rows, row: Any, factor: Any) -> None:
        factor = r.splat(factor)
        for v in range(ROW_REGISTERS):
            at = r.offset(row, INT(v * r.w))
            r.store(r.multiply(factor, r.load(at)), at)

    return types.void(like, types.int64, like.dtype), codelet(emit)


@intrinsic
def wedge_rows(typingctx, like, y_i, y_j, g_i, g_j):
    """Σ over lanes of g_j·y_i − g_i·y_j."""

    def emit(r: Rows, *rows: Any) -> Any:
        total = None
        for v in range(ROW_REGISTERS):
            y_i, y_j, g_i, g_j = (r.load(r.offset(row, INT(v * r.w))) for row in rows)
            term = r.fma(g_j, y_i, r.b.fneg(r.multiply(g_i, y_j)))
            total = term if total is None else r.b.fadd(total, term)
        width = r.w
        while width > 1:  # halve: lanes k and k + width/2
            half = [(k + width // 2) % r.w for k in range(r.w)]
            total = r.b.fadd(total, r.shuffle(total, r.undefined, half))
            width //= 2
        return r.b.extract_element(total, ir.IntType(32)(0))

    return like.dtype(like, *[types.int64] * 4), codelet(emit)
