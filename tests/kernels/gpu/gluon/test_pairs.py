"""The Gluon kernel for pairs in shared memory, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@needs_compiler
@pytest.mark.parametrize("half", [False, True])
def test_rotations_load_and_store_shared_memory_without_barriers(half):
    """Barriers: after the allocation, between copying in and rotating, between rotating and copying out."""
    from swallowtail.kernels.gpu.gluon import pairs

    constants = {"TO_BASIS": True, "FROM_BASIS": True, "MIDDLE": True, "SLOTS": 16, "ALLOCATED": 64}
    kind = "*bf16" if half else "*fp32"
    pointers = {"x_ptr": kind, "y_ptr": kind, "pair_ptr": "*i32", "row_of_ptr": "*i32"}
    compiled = compile_for_h200(pairs.shared_pairs_kernel, 1, constants, pointers)
    assembly = compiled.asm["ptx"]
    # Two ways through a chunk's two sides, the diagonal, and copying out.
    assert assembly.count("ld.shared.f32") == 2 * 2 * 16 + 1 + 32
    assert assembly.count("bar.sync") == 3
    assert compiled.metadata.shared == 64 * 32 * 4
