"""The kernels of dense groups, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.optim.adam.gpu import group_kernels, grouped

KINDS = {"numbers_ptr": "*fp64", "offsets_ptr": "*i64", "taken_ptr": "*i1"}
FLOATS = dict.fromkeys(("new1", "kept2", "new2", "kept", "new", "sign"), "fp32")
TILE = {"LEFT": True, "RIGHT": True, "EVEN": True, "ROWS": 128, "COLUMNS": 128}
SHARED = 227 * 1024  # bytes of an H200's multiprocessor that one program can have


@needs_compiler
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("kernel", ["step_groups_kernel", "carry_groups_kernel"])
def test_steps_compile(kernel, even):
    found = compile_for_h200(
        getattr(group_kernels, kernel), grouped.WARPS, TILE | {"EVEN": even}, KINDS | FLOATS
    )
    assert "wgmma" in found.asm["ptx"]  # on tensor cores
    # Loads of four numbers: addresses from the table are known to be aligned.
    assert found.asm["ptx"].count("ld.global.v4") > 0.7 * found.asm["ptx"].count("ld.global")
    assert found.metadata.shared <= SHARED


@needs_compiler
def test_others_compile():
    kernels, block = group_kernels, {"BLOCK": grouped.BLOCK}
    moments = {"SIZE": 32, "COLUMNS": 64}
    assert compile_for_h200(kernels.moments_kernel, grouped.WARPS, moments, KINDS | FLOATS).asm["ptx"]
    assert compile_for_h200(kernels.orthogonal_kernel, grouped.QR_WARPS, {"SIZE": 32}, {}).asm["ptx"]
    assert compile_for_h200(kernels.vectors_kernel, 4, block, KINDS | FLOATS).asm["ptx"]
    assert compile_for_h200(kernels.commit_kernel, 4, block, KINDS).asm["ptx"]
