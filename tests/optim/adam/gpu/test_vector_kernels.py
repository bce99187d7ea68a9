"""The kernel of tensors without a basis, compiled for an H200; `test_grouped` has its numbers."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.optim.adam.gpu.vector_kernels import vectors_kernel


@needs_compiler
@pytest.mark.parametrize("kind", ["*fp32", "*bf16"])
def test_compiled(kind):
    kinds = {"numbers_ptr": "*fp64", "taken_ptr": "*i1", "vector_ptr": "*i64", "piece_ptr": "*i64"}
    kinds |= {"g_ptr": kind, "p_ptr": kind}
    assert "sqrt" in compile_for_h200(vectors_kernel, 4, {"BLOCK": 1024}, kinds).asm["ptx"]
