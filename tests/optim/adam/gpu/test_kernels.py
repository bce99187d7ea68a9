"""GivensAdam's Triton kernels, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import plan
from swallowtail.optim.adam.gpu import kernels, launch

NUMBERS = {"numbers_ptr": "*fp64"}
BETAS = dict.fromkeys(("new1", "kept2", "new2"), "fp32")


def options(bits, turned=True):
    (p,) = plan.passes_of(1 << bits)
    return {
        "TURNED": turned, "DEPTH": 2, "EVEN": True, "DIRECT": True, "GROUPS": p.groups, "BITS": bits, "ROWS": 4,
    }  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "turned", "kinds"),
    [
        (kernels.adam_kernel, True, NUMBERS | BETAS),
        (kernels.update_kernel, True, NUMBERS | {"p_ptr": "*bf16"}),
        (kernels.carry_kernel, True, {}),
        (kernels.carry_kernel, False, {}),
    ],
    ids=["adam", "update", "carry, turned", "carry"],
)
def test_rotations_compile(kernel, turned, kinds):
    compiled = compile_for_h200(kernel, launch.WARPS, options(6, turned), kinds)
    assert "fma.rn.f32" in compiled.asm["ptx"]


@needs_compiler
def test_sketches_compile():
    assert compile_for_h200(kernels.sketch_kernel, 4, {"BLOCK": launch.SKETCH_BLOCK}, NUMBERS).asm["ptx"]


@needs_compiler
@pytest.mark.parametrize("stages", [1, 3])
def test_jacobi_pass_compiles(stages):
    constants = {"STAGES": stages, "COLUMNS": 64}
    compiled = compile_for_h200(kernels.jacobi_kernel, launch.WARPS, constants, {"starts_ptr": "*i64"})
    assert "sqrt" in compiled.asm["ptx"]
