"""Gradients of butterflies in half precision on tensor cores."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_gluon

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import check_backward, problem

from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import blocks, half_backward
from swallowtail.wiring import Butterfly

BOUNDS = {torch.float16: 6e-4, torch.bfloat16: 4.5e-3}
OTHERS = [
    (Butterfly(128), 1, torch.bfloat16),
    (Butterfly(1024), 1, torch.bfloat16),
    (Butterfly(300), 1, torch.bfloat16),  # not a multiple of 8
    (Butterfly(512, 2), 1, torch.bfloat16),
    (Butterfly(512), 2, torch.bfloat16),
    (Butterfly(512), 1, torch.float32),
]


@pytest.mark.parametrize(("wiring", "batch", "dtype"), OTHERS, ids=repr)
def test_others_go_another_way(wiring, batch, dtype, monkeypatch):
    monkeypatch.setattr(blocks, "MANY", 0)
    monkeypatch.setattr(blocks.device, "multiplies_half_blocks", lambda where: True)
    angles, y = torch.zeros(batch, wiring.n_rotations), torch.zeros(batch, 3, wiring.n, dtype=dtype)
    assert half_backward.walk_back(wiring, angles, y, y, False, None) is None


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [136, 256, 264, 512])
def test_gradients(n, reverse, dtype, monkeypatch):
    monkeypatch.setattr(blocks, "MANY", 0)
    wiring = Butterfly(n, reverse=reverse)
    angles, _, y, grad = problem(wiring, 1, 133, dtype)
    for transpose in (False, True):
        product = lambda form, x: gpu.rotate(wiring, angles, x, form == "to_basis")
        assert half_backward.walk_back(wiring, angles, y, grad, transpose, product) is not None
        check_backward(wiring, angles, y, grad, transpose, None, BOUNDS[dtype])
        first, again = (gpu.rotate_backward(wiring, angles, y, grad, transpose)[1] for _ in range(2))
        assert torch.equal(first, again)
