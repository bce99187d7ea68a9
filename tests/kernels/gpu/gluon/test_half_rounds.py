"""The Gluon kernel for rounds of groups in half precision, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.gluon.half_rounds import half_rounds_kernel
from swallowtail.kernels.gpu.half_plan import rows


@needs_compiler
@pytest.mark.parametrize(("n", "lanes", "warps"), [(784, 64, 8), (4096, 16, 16)])
def test_compiled(n, lanes, warps):
    constants = {
        "SECOND": True, "MIDDLE": True, "GAIN": True, "KIND": "bf16", "PARTS": 1, "N": rows(n), "LANES": lanes,
        "COLUMNS": 1024 * warps // lanes, "AHEAD": 4, "WARPS": warps,
    }  # fmt: skip
    tables = [f"{which}_{kind}ptr" for which in ("first", "second") for kind in ("", "place_", "flag_")]
    kinds = {"x_ptr": "*bf16", "y_ptr": "*bf16"} | dict.fromkeys([*tables, "gain_ptr"], "*i32")
    found = compile_for_h200(half_rounds_kernel, warps, constants, kinds)
    assert found.metadata.shared == rows(n) * lanes * 2 + 1024
    assert found.asm["ptx"].count("mma.sync") == 2 * 4 * lanes // 8  # two sweeps, four steps in a row
