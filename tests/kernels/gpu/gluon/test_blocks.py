"""The Gluon kernel for rounds of blocks, compiled for an H200."""

from __future__ import annotations

import itertools

import pytest
import torch
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.block_plan import block_plan

POINTERS = ("x_ptr", "y_ptr", "outer_ptr", "inner_ptr", "last_ptr")


@needs_compiler
@pytest.mark.parametrize(
    ("n", "form"),
    [(256, "symmetric"), *itertools.product((512, 784, 1024), ("from_basis", "to_basis", "symmetric"))],
)
def test_products_on_tensor_cores(n, form):
    """One instruction multiplies 16 rows by a matrix of 16 · 8. Threads exchange tiles in pieces of 16 bytes only."""
    from swallowtail.kernels.gpu.gluon.blocks import blocks_kernel

    p = block_plan(n, form, False, torch.float16)
    both, low_first = form == "symmetric", form == "from_basis"
    constants = {
        "LOW_FIRST": low_first, "BOTH": both, "GAIN": both, "FULL": True, "LENGTH": n, "A": p.high,
        "B": p.low, "ROWS": p.rows, "STAGES": p.stages, "SHARED": p.shared, "NEIGHBOURS": p.neighbours,
        "WARPS": p.warps,
    }  # fmt: skip
    assembly = compile_for_h200(blocks_kernel, p.warps, constants, dict.fromkeys(POINTERS, "*fp16")).asm[
        "ptx"
    ]
    sizes = [p.low, p.high] if low_first else [p.high, p.low]
    sizes += sizes[:1] * both
    products = sum(p.width // size * (size // 16) * (size // 8) for size in sizes) * (p.rows // 16) // p.warps
    assert assembly.count("mma.sync") == products
    assert "cp.async.cg.shared.global" in assembly
    for narrow in ("st.shared.b16", "st.shared.b32", "ld.shared.b16", "ld.shared.b32"):
        assert narrow not in assembly
