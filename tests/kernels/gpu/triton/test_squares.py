"""Σ d w² of each vector; test_range.py has the whole range."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, compile_for_h200, needs_compiler, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import dispatch
from swallowtail.kernels.gpu.triton.squares import squares_kernel


@needs_kernels
@pytest.mark.parametrize(("batch", "m", "n"), [(1, 1, 1), (2, 5, 300), (3, 8, 256), (1, 3, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_against_pytorch(batch, m, n, dtype):
    w = torch.randn(batch, m, n, device=DEVICE, dtype=dtype)
    d = torch.randn(batch, n, device=DEVICE, dtype=dtype)
    actual = dispatch.squares(w, d, dtype)
    expected = (w.double() ** 2 * d.double()[:, None]).sum(-1)
    scale = (w.double() ** 2 * d.double().abs()[:, None]).sum(-1)
    assert actual.shape == (batch, m)
    assert ((actual.double() - expected).abs() <= 8 * torch.finfo(dtype).eps * scale).all()


@needs_compiler
def test_it_compiles():
    constants = {"ROWS": dispatch.SQUARES.rows, "COLS": dispatch.SQUARES_COLS}
    assembly = compile_for_h200(squares_kernel, dispatch.SQUARES.warps, constants, {}).asm["ptx"]
    assert "ld.global.v4" in assembly or "ld.global.v2" in assembly
