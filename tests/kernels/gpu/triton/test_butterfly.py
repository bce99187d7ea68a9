"""The Triton kernel for products, compiled for an H200: the interpreter takes more than the compiler does."""

from __future__ import annotations

import pytest
import torch
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import plan
from swallowtail.kernels.gpu.triton.butterfly import rotate_kernel


def constants(p: plan.Pass, rows: int, **form) -> dict:
    """The constants of a launch, in the kernel's order."""
    every = {"TO_BASIS": True, "FROM_BASIS": False, "MIDDLE": True, "GROWING": True, "FAST": True, "DEPTH": 1}
    every |= {
        "EVEN": True,
        "QUADRATIC": False,
        "DIRECT": True,
        "GROUPS": p.groups,
        "BITS": p.bits,
        "COLS": p.cols,
    }
    return every | {"STRIDE": 1 << p.first, "ROWS": rows, "LIVE": False} | form


SMALL, STRIDED = plan.passes_of(100)[0], plan.passes_of(2**14)[1]


@needs_compiler
@pytest.mark.parametrize(
    ("p", "form"),
    [
        (SMALL, {"FROM_BASIS": True, "DEPTH": 2}),
        (SMALL, {"FROM_BASIS": True, "DEPTH": 2, "GROWING": False, "EVEN": False, "FAST": False}),
        (SMALL, {"QUADRATIC": True, "EVEN": False}),
        (SMALL, {"FROM_BASIS": True, "DEPTH": 2, "EVEN": False, "FAST": False, "LIVE": True}),
        (STRIDED, {"FROM_BASIS": True}),
        (STRIDED, {"QUADRATIC": True}),
    ],
    ids=["both ways", "both ways, plain and odd", "quadratic", "from angles", "strided", "strided quadratic"],
)
def test_it_compiles(p, form):
    rows, warps = (16, 4) if p is SMALL else plan.tile_of(p, "both ways", torch.float32, torch.float32)
    index = {"u_ptr": "*i32", "u_again_ptr": "*i32"} if form.get("LIVE") else {}
    compiled = compile_for_h200(rotate_kernel, warps, constants(p, rows, **form), index)
    assert "fma.rn.f32" in compiled.asm["ptx"]
