"""The Gluon kernel for rounds of groups in half precision, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.gluon.half_rounds import half_rounds_kernel
from swallowtail.kernels.gpu.half_plan import rows


@needs_compiler
@pytest.mark.parametrize(
    ("n", "lanes", "warps"), [(784, 64, 8), (2048, 48, 16), (4096, 24, 32), (4096, 16, 16)]
)
def test_compiled(n, lanes, warps):
    units = 128 * warps // (lanes & -lanes)
    constants = {
        "GAIN": True, "KIND": "bf16", "PARTS": 1, "N": rows(n), "LANES": lanes, "UNITS": units, "AHEAD": 4,
        "ENTRIES": -(-n // 32), "WARPS": warps,
    }  # fmt: skip
    tables = ("matrix_ptr", "place_ptr", "flag_ptr", "entry_ptr", "gain_ptr")
    kinds = {"x_ptr": "*bf16", "y_ptr": "*bf16"} | dict.fromkeys(tables, "*i32")
    found = compile_for_h200(half_rounds_kernel, warps, constants, kinds)
    assert found.metadata.shared == rows(n) * lanes * 2 + 512 + 128 * -(-n // 32)
    assert found.asm["ptx"].count("mma.sync") == 4 * lanes // 8  # four steps in a row
