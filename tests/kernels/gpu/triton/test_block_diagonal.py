"""Products with block-diagonal matrices, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.grouped import HALF_BACKWARD, HALF_PRODUCT

POINTERS = {
    **dict.fromkeys(("x_ptr", "y_ptr", "g_ptr", "out_ptr", "matrix_ptr"), "*bf16"),
    "start_ptr": "*i32",
}
SHAPE = {"TRANSPOSE": False, "EVEN": True, "UNIT": 8, "SIZE": 128}


@needs_compiler
@pytest.mark.parametrize("backward", [False, True])
def test_vectors_are_copied_aside_in_wide_pieces(backward):
    from swallowtail.kernels.gpu.triton import block_diagonal

    tile = HALF_BACKWARD if backward else HALF_PRODUCT
    kernel = (
        block_diagonal.block_diagonal_backward_kernel if backward else block_diagonal.block_diagonal_kernel
    )
    constants = {**SHAPE, "ROWS": tile.rows, "STAGES": tile.stages, "PRECISION": "tf32x3"}
    if not backward:
        constants["GAIN"] = False
    assembly = compile_for_h200(kernel, tile.warps, constants, POINTERS).asm["ptx"]
    assert "cp.async.cg.shared.global" in assembly
    assert "wgmma" in assembly
    assert "st.global.v4.b32" in assembly
