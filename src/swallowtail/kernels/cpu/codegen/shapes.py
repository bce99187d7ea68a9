"""What the CPU kernels' LLVM codelets do: butterfly blocks held in vector registers (`codegen.butterfly` emits them).

Lanes run along the features. A *block* is 2^r registers of W features, ``p`` features apart, of V
vectors at once; a codelet loads it, applies r strided stages between registers (strides p, 2p, 4p) and,
if asked, lg W stages inside each register (strides W/2 … 1, by lane shuffles), and stores it. One source
serves every instruction set: W follows from the widest register of the CPU that Numba compiles for.

Coefficients are stored by position: stage l at feature f reads ``T[l, f]`` (and ``P[l, f]``):

    fast    x[f] ← x[f] + T[l, f]·x[f ⊕ stride]            two multiply-adds per rotation
    plain   x[f] ← P[l, f]·x[f] + T[l, f]·x[f ⊕ stride]    four

The transposed step reads T at the partner's position instead. Inside a register that is a shuffle, as costly as a
multiply-add: kernels that only go from the basis have it done beforehand (`Shape.turned`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import carray, from_dtype, types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.jit import njit, register_bytes

MAX_RADIX = 3  # strided stages per pass: 8 registers per vector, two vectors fill half of AVX-512's 32
WEDGE_RADIX = 2  # backward: four vectors, two of y and two of grad, share each coefficient they fetch
WEDGE_VECTORS = 4


REGISTER_BYTES = register_bytes()


def lanes(bits: int) -> int:
    """W: how many numbers of ``bits`` bits one register holds."""
    return REGISTER_BYTES * 8 // bits


class Shape(NamedTuple):
    """What a codelet does."""

    vectors: int  # V
    radix: int  # r, strided stages
    inner: bool  # also the lg W stages inside a register
    to_basis: bool  # apply the stages of Qᵀ: falling strides, growing layers
    scale: bool  # multiply by the diagonal, between the two
    from_basis: bool  # apply the transposed stages: growing strides, falling layers
    plain: bool  # four multiply-adds per rotation instead of two
    wedge: bool = False  # the vectors are pairs (y, grad): add their wedge products to the accumulator
    turned: bool = False  # T is turned for going from the basis: its shuffles inside a register are done


def _family(
    *actions: tuple[bool, bool, bool],
    forms: tuple[tuple[int, bool], ...] = ((1, False), (2, False), (1, True)),
    wedge: bool = False,
    turned: bool = False,
) -> tuple[Shape, ...]:
    """Every shape that passes may need with these actions (to_basis, scale, from_basis) and forms (vectors, plain).

    Each is compiled.
    """
    most = WEDGE_RADIX if wedge else MAX_RADIX
    sizes = [(radix, True) for radix in range(most + 1)] + [(radix, False) for radix in range(1, most + 1)]
    return tuple(
        Shape(vectors, radix, inner, to_basis, scale, from_basis, plain, wedge, turned)
        for vectors, plain in forms
        for radix, inner in sizes
        for to_basis, scale, from_basis in actions
        # The diagonal lies between the smallest strides of the two; a plain pass has no scales left.
        if not scale or (inner and (not plain or (to_basis and from_basis)))
    )


# A kernel compiles one family; a pass names its shape by its place in it.
FAMILIES = {
    "to_basis": _family((True, False, False), (True, True, False)),
    "from_basis": _family((False, False, True), (False, True, True), turned=True),
    "symmetric": _family((True, False, False), (True, True, True), (False, False, True)),
    "to_basis wedge": _family(
        (True, False, False),
        (True, True, False),
        forms=((WEDGE_VECTORS, False), (WEDGE_VECTORS, True)),
        wedge=True,
    ),
    "from_basis wedge": _family((False, False, True), forms=((WEDGE_VECTORS, True),), wedge=True),
}


@intrinsic
def _pointer(typingctx, address, like):
    pointer = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(pointer))

    return pointer(types.int64, like), generate


def record_reader(dtype: Any) -> Any:
    """A compiled function of (address, count): the records of a structured dtype there, as an array."""
    pointer = types.CPointer(from_dtype(dtype))

    @intrinsic
    def cast(typingctx, address):
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(pointer))

        return pointer(types.int64), generate

    @njit(nogil=True, inline="always")
    def as_records(address, count):
        return carray(cast(address), count)

    return as_records


@njit(nogil=True, cache=True, inline="always")
def as_row(address, n, like):
    """The n numbers at an address, as an array of the dtype of ``like``."""
    return carray(_pointer(address, like), n)
