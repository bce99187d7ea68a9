"""How the CPU goes through a butterfly: its layers in passes, and the passes of one kernel as a program."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from swallowtail.kernels.cpu.codegen import shapes as simd


class Pass(NamedTuple):
    """Consecutive layers done while a block is in registers."""

    layer: int  # number of the first
    stride: int  # the smallest stride between registers
    radix: int  # how many layers have a stride between registers
    inner: bool  # whether the layers inside a register follow


class Plan(NamedTuple):
    """How a butterfly of n features is cut into passes for registers of W numbers."""

    n: int
    padded: int  # a power of two, at least W; the kernels work on zero-padded scratch if it is not n
    strides: np.ndarray  # shape: (layers,), of the padded butterfly
    passes: tuple[Pass, ...]
    bounds: np.ndarray  # the first layer of each pass, and how many layers there are


@lru_cache(maxsize=256)
def make_plan(n: int, depth: int, width: int, radix: int = simd.MAX_RADIX) -> Plan:
    """Group the strides padded/2 … 1 into passes of at most ``radix`` strided layers, ``depth`` times."""
    padded = max(width, 1 << (n - 1).bit_length())
    strides = [padded >> (i + 1) for i in range(padded.bit_length() - 1)]
    n_strided = len(strides) - (width.bit_length() - 1)
    # The last pass of a round also holds the inner layers, so it takes as many strided ones as it can.
    first = [n_strided % radix] if n_strided % radix else []
    sizes = [*first, *[radix] * (n_strided // radix)] or [0]
    passes, layer = [], 0
    for _ in range(depth):
        for index, size in enumerate(sizes):
            inner = index == len(sizes) - 1
            stride = padded >> (sum(sizes[: index + 1]))
            passes.append(Pass(layer, stride, size, inner))
            layer += size + (width.bit_length() - 1 if inner else 0)
    bounds = np.array([p.layer for p in passes] + [layer], np.int64)
    return Plan(n, padded, np.array(strides * depth, np.int64), tuple(passes), bounds)


ONE, OTHER, BOTH = 0, 1, 2  # which of two vectors a step works on

# A pass as the kernels read it. All fields are int64, because LLVM code reads them one by one.
STEP = np.dtype(
    [
        ("code", np.int64),  # of the shape: its place in the family
        ("which", np.int64),  # ONE, OTHER or BOTH; backward passes work on four vectors
        ("scaled", np.int64),  # whether the diagonal is applied
        ("stride", np.int64),
        ("start", np.int64),  # of the first layer's coefficients: its number times the padded length
        ("first", np.int64),  # whether it is the first pass, which reads x
        ("span", np.int64),  # how many consecutive features meet in it
    ]
)


def program(plan: Plan, family: str, plain: np.ndarray, scale: bool, vectors: int) -> np.ndarray:
    """The passes of one kernel in the order it takes them, an array of STEP.

    Args:
        plan: the passes, in the order of Qᵀ.
        family: a key of `simd.FAMILIES`.
        plain: for each pass, whether it takes four multiply-adds per rotation.
        scale: whether the diagonal is applied, after the last pass to the basis or before the first one from it.
        vectors: 1, or 2 to go through the passes with two vectors at once.
    """
    wedge = family.endswith("wedge")
    codes = {shape: code for code, shape in enumerate(simd.FAMILIES[family])}
    steps: list[tuple[int, ...]] = []

    def add(i: int, to_basis: bool, scaled: bool, from_basis: bool) -> None:
        p = plan.passes[i]
        counts = (simd.WEDGE_VECTORS,) if wedge else (1, 2)
        by_vectors = [
            simd.Shape(
                v,
                p.radix,
                p.inner,
                to_basis,
                scaled,
                from_basis,
                bool(plain[i]),
                wedge,
                family == "from_basis",
            )
            for v in counts
        ]
        if wedge:
            choices = [(by_vectors[0], BOTH)]
        elif by_vectors[vectors - 1] in codes:
            choices = [(by_vectors[vectors - 1], BOTH if vectors == 2 else ONE)]
        else:  # plain passes are rare, and compiled for one vector only
            choices = [(by_vectors[0], ONE), (by_vectors[0], OTHER)]
        first, span = not steps, p.stride << p.radix
        steps.extend(
            (codes[shape], which, scaled, p.stride, p.layer * plan.padded, first, span)
            for shape, which in choices
        )

    last = len(plan.passes) - 1
    scaled = scale and not plain[last]  # a plain pass leaves all scales at 1
    if family == "symmetric":
        for i in range(last):
            add(i, True, False, False)
        add(last, True, True, True)
        for i in reversed(range(last)):
            add(i, False, False, True)
    elif family.startswith("to_basis"):
        for i in range(last + 1):
            add(i, True, scaled and i == last, False)
    else:
        for i in reversed(range(last + 1)):
            add(i, False, scaled and i == last, True)
    return np.array(steps, STEP)
