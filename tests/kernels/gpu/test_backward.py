"""Gradients of butterflies with sums kept in registers; test_backend.py has the others."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_gluon, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check_backward, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import backward, plan
from swallowtail.wiring import Butterfly


@needs_kernels
@pytest.mark.parametrize("wiring", [Butterfly(5, 2), Butterfly(8, 2, reverse=True)], ids=repr)
@pytest.mark.parametrize("transpose", [False, True])
def test_more_blocks_of_vectors_than_slots(monkeypatch, wiring, transpose):
    """Each program adds up several blocks: seven vectors, two per block, two slots."""
    monkeypatch.setattr(plan, "tile_of", lambda *_: plan.Tile(2, 1))
    monkeypatch.setattr(backward, "PROGRAMS", 1)
    monkeypatch.setattr(backward.device, "multiprocessors", lambda where: 2)
    angles, _, y, grad = problem(wiring, 1, 7)
    tables = gpu.prepare_training(wiring, angles, y)
    assert backward._sums(tables.tables[0].u, 2, 7, 1).shape[1] < 4
    check_backward(wiring, angles, y, grad, transpose, tables, 1e-13)


@needs_gluon
@pytest.mark.parametrize("n", [256, 512, 300, 1024, 784, 513, 2048, 1500, 4096, 2056])
@pytest.mark.parametrize("reverse", [False, True])
# In bf16 a rounding adds 1.7e-3, as the root of a sum of squares: one at the end, and two or three between groups.
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 3e-7), (torch.bfloat16, 4e-3), (torch.float16, 4e-4)]
)
def test_sums_kept_in_registers(n, reverse, dtype, bound):
    """`whole_backward_kernel`: one vector, an odd number, more than the programs take at once; poisoned memory."""
    wiring = Butterfly(n, reverse=reverse)
    torch.use_deterministic_algorithms(True)
    try:
        for batch, m in ((1, 1), (2, 1003), (1, 3001)):
            angles, _, x, grad = problem(wiring, batch, m, dtype)
            tables = gpu.prepare_training(wiring, angles, x)
            assert tables.passes == (plan.TRAINING[(n - 1).bit_length()].whole,)
            for transpose in (False, True):
                y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
                expected = reference.rotate(wiring, angles.double(), x.double(), transpose)
                assert_close(y, expected, bound, "rotate")
                check_backward(wiring, angles, y, grad, transpose, tables, bound)
    finally:
        torch.use_deterministic_algorithms(False)
