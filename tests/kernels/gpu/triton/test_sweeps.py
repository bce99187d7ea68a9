"""Between angles and matrices: compiled for an H200. Their numbers are checked with what uses them."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

INTEGERS = dict.fromkeys(("partner_ptr", "angle_ptr", "start_ptr"), "*i32")


@needs_compiler
def test_a_program_keeps_its_part_in_registers():
    """A level goes through shared memory, not through the stack."""
    from swallowtail.kernels.gpu.triton.sweeps import angle_gradients_kernel, matrices_kernel

    made = compile_for_h200(
        matrices_kernel, 4, {"SYMMETRIC": True, "BOTH": False, "SIZE": 128, "COLS": 32}, INTEGERS
    )
    swept = compile_for_h200(
        angle_gradients_kernel, 4, {"TRANSPOSE": False, "SIZE": 128, "ROWS": 16}, INTEGERS
    )
    assert max(made.metadata.shared, swept.metadata.shared) <= 32 << 10
