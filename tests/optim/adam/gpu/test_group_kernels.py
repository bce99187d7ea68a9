"""The kernels of dense groups, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.optim.adam.gpu import group_kernels, matrices

KINDS = {"numbers_ptr": "*fp64", "taken_ptr": "*i1"} | dict.fromkeys(
    ("matrix_ptr", "tile_ptr", "group_ptr"), "*i64"
)
SHARED = 227 * 1024  # bytes of an H200's multiprocessor that one program can have


@needs_compiler
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("kernel", ["step_kernel", "carry_kernel"])
def test_steps_compile(kernel, even):
    constants = {"EVEN": even, **({"HALF": True} if kernel == "step_kernel" else {}), "SIZE": 128}
    found = compile_for_h200(getattr(group_kernels, kernel), matrices.WARPS, constants, KINDS)
    assert "wgmma" in found.asm["ptx"]  # on tensor cores
    if even:  # loads of four numbers: places in tables are known to be aligned
        assert found.asm["ptx"].count("ld.global.v4") > 0.7 * found.asm["ptx"].count("ld.global.b32")
    assert found.metadata.shared <= SHARED


@needs_compiler
def test_moments_compile():
    constants = {"MOST": 64, "SIZE": 128}
    found = compile_for_h200(group_kernels.moments_kernel, matrices.WARPS, constants, KINDS)
    assert found.metadata.shared <= SHARED
