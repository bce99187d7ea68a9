"""The Triton kernels for pairs, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import pairs
from swallowtail.kernels.gpu.triton.pairs import pairs_backward_kernel, pairs_kernel

INTEGERS = dict.fromkeys(("first_ptr", "second_ptr", "coordinate_ptr", "row_of_ptr"), "*i32")
SIZES = {"SLOTS": pairs.SLOTS, "LANES": pairs.LANES, "COLS": pairs.COLS}


@needs_compiler
@pytest.mark.parametrize("half", [False, True])
def test_products_compile(half):
    vectors = {"x_ptr": "*bf16", "y_ptr": "*bf16"} if half else {}
    constants = {"TO_BASIS": True, "FROM_BASIS": True, "MIDDLE": True, **SIZES}
    compiled = compile_for_h200(pairs_kernel, pairs.WARPS, constants, INTEGERS | vectors)
    assert "fma.rn.f32" in compiled.asm["ptx"]


@needs_compiler
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_compile(transpose):
    constants = {"TRANSPOSE": transpose, **SIZES}
    compiled = compile_for_h200(pairs_backward_kernel, pairs.WARPS, constants, INTEGERS)
    assert "fma.rn.f32" in compiled.asm["ptx"]
