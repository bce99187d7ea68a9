"""The Gluon kernel for three rounds of blocks, compiled for an H200."""

from __future__ import annotations

import pytest
import torch
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.block_plan import block_plan

POINTERS = ("x_ptr", "y_ptr", "first_ptr", "second_ptr", "third_ptr")


@needs_compiler
@pytest.mark.parametrize("form", ["from_basis", "to_basis"])
def test_products_on_tensor_cores(form):
    """One instruction multiplies a matrix of 16 · 16 by 8 rows. Exchanges have pieces of 16 bytes only."""
    from swallowtail.kernels.gpu.gluon.thirds import thirds_kernel

    p = block_plan(2048, form, False, torch.bfloat16)
    constants = {
        "LOW_FIRST": form == "from_basis", "FULL": True, "ROWS": p.rows, "STAGES": p.stages, "WARPS": p.warps,
    }  # fmt: skip
    assembly = compile_for_h200(thirds_kernel, p.warps, constants, dict.fromkeys(POINTERS, "*bf16")).asm[
        "ptx"
    ]
    assert assembly.count("mma.sync") == 3 * 128 * (p.rows // 8) // p.warps
    assert "cp.async.cg.shared.global" in assembly
    for narrow in ("st.shared.b16", "st.shared.b32", "ld.shared.b16", "ld.shared.b32"):
        assert narrow not in assembly
