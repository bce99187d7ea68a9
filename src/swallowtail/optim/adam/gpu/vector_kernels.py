"""Triton kernel of Adam's step on tensors without a basis: all of them in one launch."""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.optim.adam.gpu.group_kernels import (
    KEPT,
    KEPT2,
    LR,
    N_NUMBERS,
    NEW1,
    NEW2,
    SIGN,
    USED,
    direction,
    number,
)

# Columns of the table of vectors: where tensors begin, their length, and the row of numbers.
GRADIENT, PARAMETER, FIRST, SECOND, LENGTH, ROW = (tl.constexpr(k) for k in range(6))
VECTOR_WIDTH = tl.constexpr(6)


@triton.jit
def vectors_kernel(
    g_ptr, p_ptr, first_ptr, second_ptr, vector_ptr, piece_ptr, numbers_ptr, taken_ptr, BLOCK: tl.constexpr
):  # fmt: skip
    """p ← kept · p − lr · Adam(g) if the step is taken; moments move on if it is used. A program has BLOCK entries."""
    piece_ptr += tl.program_id(0) * 2
    vector_ptr += tl.load(piece_ptr) * VECTOR_WIDTH
    i = tl.load(piece_ptr + 1) * BLOCK + tl.arange(0, BLOCK)
    some = i < tl.load(vector_ptr + LENGTH)
    numbers_ptr += tl.load(vector_ptr + ROW) * N_NUMBERS
    g = tl.load(g_ptr + tl.load(vector_ptr + GRADIENT) + i, mask=some, other=0.0).to(tl.float32)
    g = g * number(numbers_ptr, SIGN)
    used = tl.load(numbers_ptr + USED) > 0
    second_ptr += tl.load(vector_ptr + SECOND)
    second = tl.load(second_ptr + i, mask=some, other=0.0)
    moved = number(numbers_ptr, KEPT2) * second + number(numbers_ptr, NEW2) * g * g
    second = tl.where(used, moved, second)
    tl.store(second_ptr + i, second, mask=some)
    first_ptr += tl.load(vector_ptr + FIRST)
    first = tl.load(first_ptr + i, mask=some, other=0.0)
    first = tl.where(used, first + number(numbers_ptr, NEW1) * (g - first), first)
    tl.store(first_ptr + i, first, mask=some)
    u = direction(first, second, numbers_ptr)
    p_ptr += tl.load(vector_ptr + PARAMETER)
    p = tl.load(p_ptr + i, mask=some, other=0.0).to(tl.float32)
    new = number(numbers_ptr, KEPT) * p - number(numbers_ptr, LR) * u
    written = some & (tl.load(taken_ptr) != 0)
    tl.store(p_ptr + i, new.to(p_ptr.dtype.element_ty), mask=written)
