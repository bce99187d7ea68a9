"""The codelets of `shapes` as LLVM instructions: one block, the loops over blocks and vectors, and the intrinsic."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.shapes import FAMILIES, Shape, lanes
from swallowtail.kernels.cpu.jit import for_range_slice

INT = ir.IntType(64)


class _Emitter:
    """Emits the instructions of one block."""

    def __init__(self, builder: Any, bits: int, shape: Shape, arguments: dict[str, Any]) -> None:
        self.b, self.s, self.a, self.bits = builder, shape, arguments, bits
        self.scalar = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.w = lanes(bits)
        self.vector = ir.VectorType(self.scalar, self.w)
        self.rows = 1 << shape.radix
        self.n_stages = shape.radix + (self.w.bit_length() - 1 if shape.inner else 0)
        # Where register m of a block lies from its first one on, in bytes. Shared by data and coefficients.
        self.at = arguments["at"]
        self.base = builder.mul(arguments["base"], INT(bits // 8))
        self.begins: dict[Any, Any] = {}  # where the block begins in each row of numbers
        self.rows_of: dict[tuple[str, int], Any] = {}

    def pointer(self, address: Any, m: int) -> Any:
        """Of register m in the row of numbers that begins at an address."""
        if address not in self.begins:
            begin = self.b.add(address, self.base)
            # If LLVM saw how it is made, it would compute all addresses of a strided block ahead and spill them.
            self.begins[address] = begin if self.s.inner else _opaque(self.b, begin)
        return self.b.inttoptr(self.b.add(self.begins[address], self.at[m]), self.vector.as_pointer())

    def load(self, address: Any, m: int) -> Any:
        value = self.b.load(self.pointer(address, m))
        value.align = self.bits // 8  # rows of a batch need not start on a register boundary
        return value

    def store(self, value: Any, address: Any, m: int) -> None:
        self.b.store(value, self.pointer(address, m)).align = self.bits // 8

    def partner(self, value: Any, h: int) -> Any:
        """Lane i receives lane i ⊕ h."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.w), [i ^ h for i in range(self.w)])
        return self.b.shuffle_vector(value, ir.Constant(self.vector, ir.Undefined), mask)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.b.fmul(a, b, flags=("contract",))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c; "contract" lets LLVM fuse the two."""
        return self.b.fadd(self.multiply(a, b), c, flags=("contract",))

    def row(self, name: str, stage: int) -> Any:
        """Where this stage's row of T, P or the accumulator S begins."""
        if (name, stage) not in self.rows_of:
            number = self.b.add(self.a["layer"], self.b.mul(self.a["n"], INT(stage)))
            self.rows_of[name, stage] = self.b.add(self.a[name], self.b.mul(number, INT(self.bits // 8)))
        return self.rows_of[name, stage]

    def combine(self, own: Any, other: Any, p: Any, t: Any) -> Any:
        """One output of a rotation: p·own + t·other, with p = 1 in the fast form."""
        return self.fma(t, other, self.multiply(p, own) if self.s.plain else own)

    def stages(self, x: list[list[Any]], transposed: bool) -> None:
        """All stages of the block, in the order of Qᵀ (growing layers) or of Q (falling layers)."""
        order = range(self.n_stages)
        for stage in reversed(order) if transposed else order:
            if stage < self.s.radix:
                self.strided(x, 1 << (self.s.radix - 1 - stage), stage, transposed)
            else:
                h = self.w >> (stage - self.s.radix + 1)
                self.inner(x, h, stage, transposed)

    def strided(self, x: list[list[Any]], h: int, stage: int, transposed: bool) -> None:
        for i in (m for m in range(self.rows) if not m & h):
            j = i + h
            p_i, p_j, t_i, t_j = self.pair_coefficients(i, j, stage)
            if transposed:
                t_i, t_j = t_j, t_i
            if self.s.wedge:
                self.accumulate(x[i], x[j], i, stage)
            for v in range(self.s.vectors):
                a, b = x[i][v], x[j][v]
                x[i][v], x[j][v] = self.combine(a, b, p_i, t_i), self.combine(b, a, p_j, t_j)

    def coefficient(self, m: int, stage: int) -> tuple[Any, Any]:
        """Register m of P, which the fast form does without, and of T."""
        return self.load(self.row("P", stage), m) if self.s.plain else None, self.load(
            self.row("T", stage), m
        )

    def pair_coefficients(self, i: int, j: int, stage: int) -> tuple[Any, Any, Any, Any]:
        p_i, t_i = self.coefficient(i, stage)
        if self.s.wedge and self.s.from_basis:  # these coefficients carry no scales: [[c, s], [−s, c]]
            return p_i, p_i, t_i, self.b.fneg(t_i)
        p_j, t_j = self.coefficient(j, stage)
        return p_i, p_j, t_i, t_j

    def inner(self, x: list[list[Any]], h: int, stage: int, transposed: bool) -> None:
        for m in range(self.rows):
            p, t = self.coefficient(m, stage)
            if transposed and not self.s.turned:
                t = self.partner(t, h)
            others = [self.partner(value, h) for value in x[m]]
            if self.s.wedge:
                # Right in the lanes of first coordinates; the other lanes hold its negative and are not read.
                self.accumulate(x[m], others, m, stage)
            x[m] = [self.combine(own, other, p, t) for own, other in zip(x[m], others, strict=True)]

    def accumulate(self, i: list[Any], j: list[Any], m: int, stage: int) -> None:
        """Add g_j·y_i − g_i·y_j of every pair (y, g) of vectors; i is in register m."""
        row = self.row("S", stage)
        total = self.load(row, m)
        for v in range(0, self.s.vectors, 2):
            negative = self.b.fneg(i[v + 1])
            total = self.fma(j[v + 1], i[v], self.fma(negative, j[v], total))
        self.store(total, row, m)

    def block(self) -> None:
        x = []
        for m in range(self.rows):
            row = []
            for v in range(self.s.vectors):
                row.append(self.load(self.a[f"src{v}"], m))
            x.append(row)
        if self.s.to_basis:
            self.stages(x, transposed=False)
        if self.s.scale and self.s.wedge:  # S is the accumulator, P not needed; nobody reads y any more
            for m in range(self.rows):
                d = self.load(self.a["P"], m)
                x[m] = [self.multiply(d, value) if v % 2 else value for v, value in enumerate(x[m])]
        elif self.s.scale:
            for m in range(self.rows):
                d = self.load(self.a["S"], m)
                x[m] = [self.multiply(d, value) for value in x[m]]
        if self.s.from_basis:
            self.stages(x, transposed=True)
        for m in range(self.rows):
            for v in range(self.s.vectors):
                self.store(x[m][v], self.a[f"dst{v}"], m)


_ARGUMENTS = (
    *("src0", "src1", "src2", "src3", "dst0", "dst1", "dst2", "dst3"),
    *("p", "n", "T", "P", "S", "layer", "live", "mirror", "repeat", "step"),
)


@intrinsic(prefer_literal=True)
def butterfly_pass(
    typingctx, family, like, code, sources, targets, p, n, T, P, S, layer, live, mirror, repeat, step
):
    """One pass over one, two or four vectors: every block of shape ``FAMILIES[family][code]``.

    Args:
        family: a literal string; like: an array whose dtype is that of the numbers.
        sources, targets: four addresses each; a shape for fewer vectors reads the first ones.
        T, P, S: addresses. S is the diagonal; going backward S is the accumulator of wedge products, and P the
            diagonal where a fast pass has one.
        p: smallest stride; n: padded length of a vector; layer: n times the first stage's number;
            live: features from here on are padding. All count elements.
        mirror: blocks are taken in the order of their first feature's number ⊕ this.
        repeat: how often, each time ``step`` bytes further on in the sources and targets.
    """
    if not isinstance(family, types.StringLiteral):
        return None
    bits = like.dtype.bitwidth
    four = types.UniTuple(types.int64, 4)
    signature = types.void(family, like, types.int64, four, four, *[types.int64] * 10)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        addresses = [builder.extract_value(v, k) for v in values[3:5] for k in range(4)]
        builder.call(
            _function(builder.module, family.literal_value, bits), [values[2], *addresses, *values[5:]]
        )
        return context.get_dummy_value()

    return signature, generate


def _function(module: Any, family: str, bits: int) -> Any:
    """All shapes of a family as one LLVM function: their loops need all the registers for addresses.

    It is not a function of Numba's. One in a kernel's closure would give that kernel another hash in every process, and
    the disk cache would never find it.
    """
    name = f"swallowtail {family} {bits}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT] * (1 + len(_ARGUMENTS))), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    arguments = dict(zip(_ARGUMENTS, function.args[1:], strict=True))
    done = function.append_basic_block("done")
    switch = builder.switch(function.args[0], done)
    for code, shape in enumerate(FAMILIES[family]):
        case = function.append_basic_block(f"shape{code}")
        switch.add_case(INT(code), case)
        with builder.goto_block(case):
            _blocks(builder, bits, shape, arguments)
            builder.branch(done)
    builder.position_at_end(done)
    builder.ret_void()
    return function


def _opaque(builder: Any, value: Any) -> Any:
    """The value, in a register, with nothing known about it."""
    return builder.asm(ir.FunctionType(INT, [INT]), "", "=r,0", [value], False)


def _blocks(builder: Any, bits: int, shape: Shape, arguments: dict[str, Any]) -> None:
    """The loop over vectors, and in each over all blocks: every 2^r·p features, and every W of the p in between."""
    width = INT(lanes(bits))
    # With stages inside registers blocks are contiguous; said here, it saves as many instructions as a stage takes.
    p = width if shape.inner else arguments["p"]
    span = builder.mul(p, INT(1 << shape.radix))
    at = [builder.mul(p, INT(m * bits // 8)) for m in range(1 << shape.radix)]
    places = [f"{kind}{v}" for kind in ("src", "dst") for v in range(shape.vectors)]
    with for_range_slice(builder, INT(0), arguments["repeat"], INT(1)) as (index, _):
        on = builder.mul(index, arguments["step"])
        moved = {place: builder.add(arguments[place], on) for place in places}
        with for_range_slice(builder, INT(0), arguments["live"], span) as (start, _):
            end = builder.add(start, p)
            with for_range_slice(builder, start, end, width) as (base, _):
                base = builder.xor(base, arguments["mirror"])
                _Emitter(builder, bits, shape, {**arguments, **moved, "at": at, "base": base}).block()
