"""One small dense matrix times many vectors."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, compile_for_h200, needs_compiler, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.block_plan import block_plan
from swallowtail.kernels.gpu.launch import launch


@needs_kernels
@pytest.mark.parametrize("n", [16, 24])
@pytest.mark.parametrize("gain", [False, True])
def test_against_pytorch(n, gain):
    from swallowtail.kernels.gpu.triton.dense import dense_kernel

    size, rows = 16 if n == 16 else 32, 37
    x = torch.randn(rows, n, device=DEVICE).half()
    matrix = torch.zeros(size, size, device=DEVICE, dtype=torch.float16)
    matrix[:n, :n] = torch.randn(n, n)
    factor = torch.tensor([3.0], device=DEVICE)
    y = torch.full_like(x, torch.nan)
    launch(
        dense_kernel, (2,), x, y, matrix, factor, rows, n // 8, 3, 2,
        GAIN=gain, EVEN=n == size, N=size, ROWS=16, STAGES=2,
    )  # fmt: skip
    expected = x.double() @ matrix[:n, :n].double().T * (3 if gain else 1)
    assert (y.double() - expected).norm() <= 1e-3 * expected.norm()


@needs_compiler
@pytest.mark.parametrize("n", [64, 128, 72])
def test_vectors_are_copied_aside_in_wide_pieces(n):
    from swallowtail.kernels.gpu.triton.dense import dense_kernel

    p = block_plan(n, "from_basis", False, torch.bfloat16)
    constants = {"GAIN": False, "EVEN": n == p.low, "N": p.low, "ROWS": p.rows, "STAGES": p.stages}
    pointers = dict.fromkeys(("x_ptr", "y_ptr", "matrix_ptr"), "*bf16")
    assembly = compile_for_h200(dense_kernel, p.warps, constants, pointers).asm["ptx"]
    assert "cp.async.cg.shared.global" in assembly
    assert "wgmma" in assembly
    assert assembly.count("st.global.v4.b32") == p.rows * p.low // (8 * 32 * p.warps)
