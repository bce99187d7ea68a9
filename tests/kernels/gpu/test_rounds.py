"""Pairs and grouped rounds by small matrices, on a GPU."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_gluon

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check, problem
from kernels.gpu.grouping import free_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import rounds
from swallowtail.wiring import Pairs

BOUNDS = {torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 4.5e-3}


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("n", "prepared"), [(784, True), (1001, False), (2100, True)])
def test_every_function(n, prepared, dtype, monkeypatch):
    taken = []
    apply = rounds.apply
    monkeypatch.setattr(rounds, "apply", lambda *a: (taken.append(a), apply(*a))[1])
    check(free_groups(n, 16, 3), 1, 40, dtype, BOUNDS[dtype], prepared)
    assert taken


@needs_gluon
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_many_rotations_of_few_coordinates_are_one_dense_matrix(dtype, monkeypatch):
    taken = []
    multiply = rounds.multiply_dense
    monkeypatch.setattr(rounds, "multiply_dense", lambda *a: (taken.append(a), multiply(*a))[1])
    wiring = Pairs.from_sequence(300, [(k % 7, 7 + k % 293) for k in range(1500)])[0]
    check(wiring, 1, 70, dtype, BOUNDS[dtype], True)
    assert len(taken) == 3
    angles, _, x, _ = problem(wiring, 1, 5, dtype)
    gpu.rotate(wiring, angles, x, prepared=gpu.prepare_training(wiring, angles, x))  # angles will change
    assert len(taken) == 3


@needs_gluon
@pytest.mark.parametrize("scale", [1e-7, 1e7])
@pytest.mark.parametrize("prepared", [True, False])
def test_eigenvalues_out_of_the_range_of_fp16(scale, prepared):
    wiring = free_groups(300, 16, 6)
    angles, d, x, _ = problem(wiring, 1, 20, torch.float16)
    x, d = x / scale**0.5, d * scale
    y = gpu.symmetric(wiring, angles, d, x, gpu.prepare(wiring, angles, d) if prepared else None)
    expected = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert_close(y, expected, 6e-4, "symmetric")


@needs_gluon
@pytest.mark.parametrize("prepared", [True, False])
def test_vectors_of_any_size(prepared):
    """Some vectors of a tile are far from the others, and from 1."""
    wiring = free_groups(784, 16, 3)
    angles, _, x, _ = problem(wiring, 1, 40, torch.float32)
    sizes = torch.tensor([1e-44, 1e-36, 1e-30, 1.0, 1e20, 1e36, 0.0], device=x.device)
    x = x * sizes[torch.arange(40, device=x.device) % 7][:, None]
    y = gpu.rotate(wiring, angles, x, prepared=gpu.prepare(wiring, angles) if prepared else None)
    exact = reference.rotate(wiring, angles.double(), x.double())[0]
    for row, truth in zip(y[0].double(), exact, strict=True):
        assert (row - truth).norm() <= 1e-6 * truth.norm() + wiring.n * 2.0**-149


@needs_gluon
def test_rounded_products_where_pytorch_may_round():
    wiring = free_groups(300, 16, 2)
    angles, _, x, _ = problem(wiring, 1, 40, torch.float32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        y = gpu.rotate(wiring, angles, x)
    finally:
        torch.set_float32_matmul_precision(before)
    assert_close(y, reference.rotate(wiring, angles.double(), x.double()), 1e-3, "Q x")
