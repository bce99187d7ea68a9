"""Cosines and sines on the device against those of float64."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

import triton
import triton.language as tl

from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.angles import cos_sin


@triton.jit
def both_kernel(theta_ptr, c_ptr, s_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c, s = cos_sin(tl.load(theta_ptr + at))
    tl.store(c_ptr + at, c)
    tl.store(s_ptr + at, s)


@needs_kernels
@pytest.mark.parametrize(("scale", "bound"), [(1.0, 1.3e-7), (7.0, 1.3e-7), (1e4, 1.3e-7), (1e8, 1e-7)])
def test_each_is_within_about_one_rounding(scale, bound):
    theta = (
        torch.rand(4096, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    ) * scale
    theta = theta.float().to(DEVICE)
    theta[:5] = torch.tensor([0.0, torch.pi / 2, -torch.pi / 2, torch.pi, -torch.pi / 4])
    c, s = torch.empty_like(theta), torch.empty_like(theta)
    launch(both_kernel, (4,), theta, c, s, BLOCK=1024)
    for actual, expected in ((c, theta.double().cos()), (s, theta.double().sin())):
        assert (actual - expected).abs().max() < bound
    assert (c.double() ** 2 + s.double() ** 2 - 1).abs().max() < 2.5e-7
