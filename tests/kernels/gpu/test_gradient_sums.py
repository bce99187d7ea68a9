"""Sums over vectors, and the gradients of angles that follow from them."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem
from kernels.gpu.grouping import free_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import gradient_sums
from swallowtail.kernels.gpu.round_plan import SHAPES, round_plan


@needs_kernels
@pytest.mark.parametrize("parts", [1, 2, 7, 40])
def test_parts_are_added_up(parts):
    x = torch.randn(parts, 3, 4, 50, generator=torch.Generator().manual_seed(parts)).to(DEVICE)
    torch.testing.assert_close(gradient_sums.added(x), x.sum(0, keepdim=True), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("m", [32, 100, 320])
def test_products_of_all_rows_are_made_in_pieces(m):
    grad, y = torch.randn(2, 1, m, 5, generator=torch.Generator().manual_seed(m))
    torch.testing.assert_close(gradient_sums.whole_products(grad, y), grad.mT @ y)


@needs_kernels
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_of_one_round_follow_from_the_sums_of_its_groups(transpose):
    wiring = free_groups(48, 16, 1)
    angles, _, y, grad = problem(wiring, 1, 9, torch.float32)
    plan = round_plan(wiring, SHAPES)
    partner, angle = (torch.tensor(table, device=DEVICE) for table in (plan.partner, plan.angle))
    at = torch.tensor(plan.coordinates, device=DEVICE, dtype=torch.int64)
    inside = (at >= 0).float()
    rows = lambda t: t[0][:, at.clamp(min=0)] * inside  # shape: (m, blocks, size)
    sums = torch.einsum("mqi,mqj->qij", rows(grad), rows(y))[None]
    found = gradient_sums.angle_gradients(partner, angle, angles, sums.contiguous(), transpose)
    exact = reference.rotate_backward(wiring, angles.double(), y.double(), grad.double(), transpose)[1]
    assert_close(found, exact, 1e-6, "gradient of angles")
