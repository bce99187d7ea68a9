"""The Triton kernels for gradients, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import backward, plan
from swallowtail.kernels.gpu.triton.backward import backward_kernel, collect_kernel


@needs_compiler
@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("n", [100, 2**14])
def test_the_walk_back_compiles(growing, n):
    p = plan.passes_of(n)[-1]
    constants = {
        "KEEP_Y": growing, "TRANSPOSE": True, "GROWING": growing, "DEPTH": 2, "EVEN": growing, "DIRECT": True,
        "GROUPS": p.groups, "BITS": p.bits, "COLS": p.cols, "STRIDE": 1 << p.first, "ROWS": 2,
    }  # fmt: skip
    compiled = compile_for_h200(backward_kernel, 4, constants, {})
    assert "fma.rn.f32" in compiled.asm["ptx"]


@needs_compiler
def test_collecting_adds_in_float64():
    constants = {"SIGN": -1, "SLOTS": backward.COLLECT_SLOTS, "BLOCK": backward.COLLECT_BLOCK}
    compiled = compile_for_h200(collect_kernel, backward.COLLECT_WARPS, constants, {"index_ptr": "*i64"})
    assert "add.f64" in compiled.asm["ptx"] or "add.rn.f64" in compiled.asm["ptx"]
