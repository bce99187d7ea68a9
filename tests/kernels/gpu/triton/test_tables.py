"""The Triton kernel that makes tables, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.tables import TABLE_BLOCK
from swallowtail.kernels.gpu.triton.tables import table_kernel


@needs_compiler
@pytest.mark.parametrize("angles", ["*fp64", "*bf16"])
def test_cosines_and_sines_are_taken_in_float64(angles):
    pointers = {"angles_ptr": angles, "index_ptr": "*i64"}
    assembly = compile_for_h200(table_kernel, 4, {"BLOCK": TABLE_BLOCK}, pointers).asm["ptx"]
    assert "fma.rn.f64" in assembly
    assert "sin.approx" not in assembly
