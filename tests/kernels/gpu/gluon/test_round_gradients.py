"""The Gluon kernel for gradients of rounds, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@needs_compiler
@pytest.mark.parametrize(("size", "groups"), [(16, 8), (16, 4), (32, 4)])
def test_nothing_but_vectors_goes_through_shared_memory(size, groups):
    from swallowtail.kernels.gpu.gluon.round_gradients import round_gradients_kernel

    rows, lanes, warps = 788, 16, 2 * groups
    constants = {
        "TRANSPOSE": False, "SUMS": False, "EXACT": True, "VECTORS": True, "UNIT": 4, "N": rows, "SIZE": size,
        "LANES": lanes, "COLUMNS": 16 * warps, "GROUPS": groups, "WARPS": warps,
    }  # fmt: skip
    kernel = compile_for_h200(round_gradients_kernel, warps, constants, {"place_ptr": "*i32"})
    assert kernel.metadata.shared == rows * 2 * lanes * 4
    assembly = kernel.asm["ptx"]
    assert "ldmatrix" not in assembly
    # A warp has half of the lanes of its group, and half of the columns of its sums; three products for each.
    steps = size // 16 * (lanes // 8) * (size // 8)
    sums = size // 16 * (size // 16) * (lanes // 8)
    assert assembly.count("mma.sync") == 3 * (steps + sums)
    assert assembly.count("red.global.add.v2.f32") == size // 16 * (size // 16) * 2
