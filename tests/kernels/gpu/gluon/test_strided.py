"""The Gluon kernel for strided passes in half precision, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.block_plan import STRIDED_TILES, STRIDED_WARPS


@needs_compiler
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("bits", STRIDED_TILES)
def test_a_thread_keeps_its_columns(bits, even):
    """Partners meet in one thread: nothing is stored to shared memory but by the copies from memory."""
    from swallowtail.kernels.gpu.gluon.strided import strided_kernel

    constants = {
        "TRANSPOSE": False, "GROWING": True, "GAIN": False, "EVEN": even, "FIRST": 10, "BITS": bits,
        "STAGES": STRIDED_TILES[bits].stages, "WARPS": STRIDED_WARPS,
    }  # fmt: skip
    assembly = compile_for_h200(
        strided_kernel, STRIDED_WARPS, constants, {"x_ptr": "*bf16", "y_ptr": "*bf16"}
    ).asm["ptx"]
    assert "cp.async.cg.shared.global" in assembly
    assert assembly.count("st.shared") == assembly.count("stmatrix") == 0
    assert assembly.count("st.global.b32") == 1 << bits  # two columns of each partner
