"""LLVM codelets for the CPU kernels: butterfly blocks held in vector registers.

Lanes run along the features. A *block* is 2^r registers of W features, ``p`` features apart, of V
vectors at once; a codelet loads it, applies r strided stages between registers (strides p, 2p, 4p) and,
if asked, lg W stages inside each register (strides W/2 … 1, by lane shuffles), and stores it. One source
serves every instruction set: W follows from the widest register of the CPU that Numba compiles for.

Coefficients are stored by position: stage l at feature f reads ``T[l, f]`` (and ``P[l, f]``):

    fast    x[f] ← x[f] + T[l, f]·x[f ⊕ stride]            two multiply-adds a rotation
    plain   x[f] ← P[l, f]·x[f] + T[l, f]·x[f ⊕ stride]    four

The transposed step reads T at the partner's position instead. Inside a register that is a shuffle, as costly as a
multiply-add: kernels that only go up have it done beforehand (`Shape.turned`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import carray, config, types
from numba.core.cgutils import for_range_slice
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from swallowtail.kernels._numba import njit

MAX_RADIX = 3  # strided stages a pass: 8 registers a vector, two vectors fill half of AVX-512's 32
WEDGE_RADIX = 2  # backward: four vectors, two of y and two of grad, share each coefficient they fetch
WEDGE_VECTORS = 4


def _register_bytes() -> int:
    """Width of the widest vector register Numba's target has, read off the code LLVM makes for it."""
    probe = """define void @probe(ptr %x) {
      %a = load <16 x float>, ptr %x
      %b = fadd <16 x float> %a, %a
      store <16 x float> %b, ptr %x
      ret void }"""
    codegen = cpu_target.target_context.codegen()
    options = {
        "cpu": config.CPU_NAME or llvm.get_host_cpu_name(),
        "features": codegen._get_host_cpu_features(),
    }
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, **options)
    code = machine.emit_assembly(llvm.parse_assembly(probe))
    return 64 if "zmm" in code else 32 if "ymm" in code else 16


REGISTER_BYTES = _register_bytes()


def lanes(bits: int) -> int:
    """W: how many numbers of ``bits`` bits one register holds."""
    return REGISTER_BYTES * 8 // bits


class Shape(NamedTuple):
    """What a codelet does."""

    vectors: int  # V
    radix: int  # r, strided stages
    inner: bool  # also the lg W stages inside a register
    down: bool  # apply the stages of Qᵀ: strides falling, layers rising
    scale: bool  # multiply by the diagonal, after down and before up
    up: bool  # apply the transposed stages: strides rising, layers falling
    plain: bool  # four multiply-adds a rotation instead of two
    wedge: bool = False  # the vectors are pairs (y, grad): add their wedge products to the accumulator
    turned: bool = False  # T is turned for going up: its shuffles inside a register are done


def _family(
    *actions: tuple[bool, bool, bool],
    forms: tuple[tuple[int, bool], ...] = ((1, False), (2, False), (1, True)),
    wedge: bool = False,
    turned: bool = False,
) -> tuple[Shape, ...]:
    """Every shape that passes with these (down, scale, up) actions and (vectors, plain) forms may need: each is
    compiled.
    """
    most = WEDGE_RADIX if wedge else MAX_RADIX
    sizes = [(radix, True) for radix in range(most + 1)] + [(radix, False) for radix in range(1, most + 1)]
    return tuple(
        Shape(vectors, radix, inner, down, scale, up, plain, wedge, turned)
        for vectors, plain in forms
        for radix, inner in sizes
        for down, scale, up in actions
        # The diagonal lies between the smallest strides of down and up; a plain pass has no scales left.
        if not scale or (inner and (not plain or (down and up)))
    )


# A kernel compiles one family; a pass names its shape by its place in it.
FAMILIES = {
    "down": _family((True, False, False), (True, True, False)),
    "up": _family((False, False, True), (False, True, True), turned=True),
    "symmetric": _family((True, False, False), (True, True, True), (False, False, True)),
    "down wedge": _family(
        (True, False, False),
        (True, True, False),
        forms=((WEDGE_VECTORS, False), (WEDGE_VECTORS, True)),
        wedge=True,
    ),
    "up wedge": _family((False, False, True), forms=((WEDGE_VECTORS, True),), wedge=True),
}


class _Emitter:
    """Emits the instructions of one block."""

    def __init__(self, builder: Any, bits: int, shape: Shape, arguments: dict[str, Any]) -> None:
        self.b, self.s, self.a, self.bits = builder, shape, arguments, bits
        self.scalar = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.w = lanes(bits)
        self.vector = ir.VectorType(self.scalar, self.w)
        self.rows = 1 << shape.radix
        self.n_stages = shape.radix + (self.w.bit_length() - 1 if shape.inner else 0)
        p = arguments["p"]
        # Where register m of the block lies, in elements: base + m·p. Shared by data and coefficients.
        self.at = [arguments["base"]]
        for _ in range(self.rows - 1):
            self.at.append(builder.add(self.at[-1], p))

    def pointer(self, address: Any, offset: Any) -> Any:
        size = ir.Constant(ir.IntType(64), self.bits // 8)
        where = self.b.add(address, self.b.mul(offset, size))
        return self.b.inttoptr(where, self.vector.as_pointer())

    def load(self, address: Any, offset: Any) -> Any:
        value = self.b.load(self.pointer(address, offset))
        value.align = self.bits // 8  # rows of a batch need not start on a register boundary
        return value

    def store(self, value: Any, address: Any, offset: Any) -> None:
        self.b.store(value, self.pointer(address, offset)).align = self.bits // 8

    def partner(self, value: Any, h: int) -> Any:
        """Lane i receives lane i ⊕ h."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.w), [i ^ h for i in range(self.w)])
        return self.b.shuffle_vector(value, ir.Constant(self.vector, ir.Undefined), mask)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.b.fmul(a, b, flags=("contract",))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c; "contract" lets LLVM fuse the two."""
        return self.b.fadd(self.multiply(a, b), c, flags=("contract",))

    def stage_offset(self, stage: int) -> Any:
        """Where this stage's row of T, P and the accumulator begins."""
        step = self.b.mul(self.a["n"], ir.Constant(ir.IntType(64), stage))
        return self.b.add(self.a["layer"], step)

    def combine(self, own: Any, other: Any, p: Any, t: Any) -> Any:
        """One output of a rotation: p·own + t·other, with p = 1 in the fast form."""
        return self.fma(t, other, self.multiply(p, own) if self.s.plain else own)

    def stages(self, x: list[list[Any]], transposed: bool) -> None:
        """All stages of the block, in the order of Qᵀ (layers rising) or of Q (falling)."""
        order = range(self.n_stages)
        for stage in reversed(order) if transposed else order:
            offset = self.stage_offset(stage)
            if stage < self.s.radix:
                self.strided(x, 1 << (self.s.radix - 1 - stage), offset, transposed)
            else:
                h = self.w >> (stage - self.s.radix + 1)
                self.inner(x, h, offset, transposed)

    def strided(self, x: list[list[Any]], h: int, offset: Any, transposed: bool) -> None:
        for i in (m for m in range(self.rows) if not m & h):
            j = i + h
            at_i, at_j = self.b.add(offset, self.at[i]), self.b.add(offset, self.at[j])
            p_i, p_j, t_i, t_j = self.pair_coefficients(at_i, at_j)
            if transposed:
                t_i, t_j = t_j, t_i
            if self.s.wedge:
                self.accumulate(x[i], x[j], at_i)
            for v in range(self.s.vectors):
                a, b = x[i][v], x[j][v]
                x[i][v], x[j][v] = self.combine(a, b, p_i, t_i), self.combine(b, a, p_j, t_j)

    def pair_coefficients(self, at_i: Any, at_j: Any) -> tuple[Any, Any, Any, Any]:
        t_i = self.load(self.a["T"], at_i)
        p_i = self.load(self.a["P"], at_i) if self.s.plain else None
        if self.s.wedge and self.s.up:  # these coefficients carry no scales: [[c, s], [−s, c]]
            return p_i, p_i, t_i, self.b.fneg(t_i)
        p_j = self.load(self.a["P"], at_j) if self.s.plain else None
        return p_i, p_j, t_i, self.load(self.a["T"], at_j)

    def inner(self, x: list[list[Any]], h: int, offset: Any, transposed: bool) -> None:
        for m in range(self.rows):
            at = self.b.add(offset, self.at[m])
            t = self.load(self.a["T"], at)
            p = self.load(self.a["P"], at) if self.s.plain else None
            if transposed and not self.s.turned:
                t = self.partner(t, h)
            others = [self.partner(value, h) for value in x[m]]
            if self.s.wedge:
                # Right in the lanes of first coordinates; the other lanes hold its negative and are not read.
                self.accumulate(x[m], others, at)
            x[m] = [self.combine(own, other, p, t) for own, other in zip(x[m], others, strict=True)]

    def accumulate(self, i: list[Any], j: list[Any], at: Any) -> None:
        """Add g_j·y_i − g_i·y_j of every pair (y, g) of vectors."""
        total = self.load(self.a["S"], at)
        for v in range(0, self.s.vectors, 2):
            negative = self.b.fneg(i[v + 1])
            total = self.fma(j[v + 1], i[v], self.fma(negative, j[v], total))
        self.store(total, self.a["S"], at)

    def block(self) -> None:
        x = []
        for m in range(self.rows):
            row = []
            for v in range(self.s.vectors):
                row.append(self.load(self.a[f"src{v}"], self.at[m]))
            x.append(row)
        if self.s.down:
            self.stages(x, transposed=False)
        if self.s.scale and self.s.wedge:  # S is the accumulator, P not needed; nobody reads y any more
            for m in range(self.rows):
                d = self.load(self.a["P"], self.at[m])
                x[m] = [self.multiply(d, value) if v % 2 else value for v, value in enumerate(x[m])]
        elif self.s.scale:
            for m in range(self.rows):
                d = self.load(self.a["S"], self.at[m])
                x[m] = [self.multiply(d, value) for value in x[m]]
        if self.s.up:
            self.stages(x, transposed=True)
        for m in range(self.rows):
            for v in range(self.s.vectors):
                self.store(x[m][v], self.a[f"dst{v}"], self.at[m])


_ARGUMENTS = (
    *("src0", "src1", "src2", "src3", "dst0", "dst1", "dst2", "dst3"),
    *("p", "n", "T", "P", "S", "layer", "live"),
)


@intrinsic(prefer_literal=True)
def butterfly_pass(typingctx, family, like, code, sources, targets, p, n, T, P, S, layer, live):
    """One pass over one, two or four vectors: every block of shape ``FAMILIES[family][code]``.

    Args:
        family: a literal string; like: an array whose dtype is that of the numbers.
        sources, targets: four addresses each; a shape for fewer vectors reads the first ones.
        T, P, S: addresses. S is the diagonal; going backward S is the accumulator of wedge products, and P the
            diagonal where a fast pass has one.
        p: smallest stride; n: padded length of a vector; layer: n times the first stage's number;
            live: features from here on are padding. All count elements.
    """
    if not isinstance(family, types.StringLiteral):
        return None
    shapes = FAMILIES[family.literal_value]
    bits = like.dtype.bitwidth
    four = types.UniTuple(types.int64, 4)
    signature = types.void(family, like, types.int64, four, four, *[types.int64] * 7)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        addresses = [builder.extract_value(v, k) for v in values[3:5] for k in range(4)]
        arguments = dict(zip(_ARGUMENTS, [*addresses, *values[5:]], strict=True))
        done = builder.append_basic_block("done")
        switch = builder.switch(values[2], done)
        for code, shape in enumerate(shapes):
            case = builder.append_basic_block(f"shape{code}")
            switch.add_case(ir.Constant(ir.IntType(64), code), case)
            with builder.goto_block(case):
                _blocks(builder, bits, shape, arguments)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _blocks(builder: Any, bits: int, shape: Shape, arguments: dict[str, Any]) -> None:
    """The loop over all blocks: every 2^r·p features, and every W of the p in between."""
    constant = ir.IntType(64)
    p, width = arguments["p"], ir.Constant(constant, lanes(bits))
    span = builder.mul(p, ir.Constant(constant, 1 << shape.radix))
    zero = ir.Constant(constant, 0)
    with for_range_slice(builder, zero, arguments["live"], span) as (start, _):
        end = builder.add(start, p)
        with for_range_slice(builder, start, end, width) as (base, _):
            _Emitter(builder, bits, shape, {**arguments, "base": base}).block()


@intrinsic
def _pointer(typingctx, address, like):
    pointer = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(pointer))

    return pointer(types.int64, like), generate


@njit(nogil=True, cache=True, inline="always")
def as_row(address, n, like):
    """The n numbers at an address, as an array of the dtype of ``like``."""
    return carray(_pointer(address, like), n)
