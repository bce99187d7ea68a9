"""The Gluon kernel for rounds of groups, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@needs_compiler
@pytest.mark.parametrize(("size", "lanes", "warps"), [(16, 32, 8), (16, 16, 8), (32, 16, 4), (16, 8, 16)])
def test_shared_memory_holds_the_vectors_and_nothing_else(size, lanes, warps):
    from swallowtail.kernels.gpu.gluon.rounds import rounds_kernel

    rows = 788
    constants = {
        "TO_BASIS": False, "FROM_BASIS": True, "EXACT": True, "UNIT": 4, "N": rows, "SIZE": size, "LANES": lanes,
        "COLUMNS": 128 if lanes == 32 else 32 * warps, "WARPS": warps,
    }  # fmt: skip
    kernel = compile_for_h200(rounds_kernel, warps, constants, {"place_ptr": "*i32"})
    assert kernel.metadata.shared == rows * lanes // 32 * 128 + 256
    assembly = kernel.asm["ptx"]
    # Two rows by two columns of every 16 × 8 product are stored, two numbers at a time; nothing is exchanged.
    assert assembly.count("st.shared.v2.f32") == size // 16 * lanes // 8 * 2
    assert "ldmatrix" not in assembly
    assert assembly.count("mma.sync") == 3 * (size // 16) * (lanes // 8) * (size // 8)
