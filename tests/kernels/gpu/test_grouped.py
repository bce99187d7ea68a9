"""Block-diagonal rotations: products and gradients against the reference."""

from __future__ import annotations

import pytest
import torch
from interpreter import INTERPRETED, needs_gluon, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check, problem
from kernels.gpu.grouping import fixed_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import grouped
from swallowtail.kernels.gpu.group_tables import MadeGroups
from swallowtail.wiring import Butterfly, Pairs

BOUNDS = {torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 4.5e-3}
WIRINGS = {
    "fixed": fixed_groups(48, 16, 2),
    "rest": fixed_groups(70, 64, 1),
    "uneven": Pairs(67, [[(0, 60), (61, 66), (1, 30)]]),  # in float32, two blocks that are not full
    "odd": Pairs(21, [[(0, 3), (4, 5)], [(3, 1)], [(20, 18)]]),
}


@needs_kernels
@pytest.mark.parametrize("name", WIRINGS)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_every_function(name, dtype, monkeypatch):
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies no bf16")
    taken = []
    for what in ("apply", "walk_back"):
        function = getattr(grouped, what)
        record = lambda *a, what=what, function=function: (taken.append(what), function(*a))[1]
        monkeypatch.setattr(grouped, what, record)
    check(WIRINGS[name], 1, 70, dtype, BOUNDS[dtype], prepared=name in ("fixed", "odd"))
    # Q x and Qᵀ x and their gradients, Q D Qᵀ x, and Qᵀ x of the quadratic form.
    assert taken.count("walk_back") == 2
    assert taken.count("apply") >= 4


@needs_gluon
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wiring", [Butterfly(512, 2), fixed_groups(768, 256, 3), fixed_groups(700, 350, 2)])
def test_larger_groups_in_half_precision(wiring, dtype):
    check(wiring, 1, 70, dtype, BOUNDS[dtype], False)


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("n", [3584, 13700])
def test_groups_of_128(n, dtype):
    check(fixed_groups(n, 128, 8), 1, 70, dtype, BOUNDS[dtype], False)


@needs_kernels
@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_eigenvalues_out_of_the_range_of_fp16(scale):
    wiring = WIRINGS["fixed"]
    angles, d, x, _ = problem(wiring, 1, 20, torch.float16)
    x = x / scale**0.5
    y = gpu.symmetric(wiring, angles, d * scale, x)
    expected = reference.symmetric(wiring, angles.double(), d.double() * scale, x.double())
    assert_close(y, expected, 6e-4, "symmetric")


@needs_kernels
@pytest.mark.parametrize("by_pytorch", [False, True])
def test_small_butterflies_are_trained_by_their_matrix(by_pytorch, monkeypatch):
    if by_pytorch:
        monkeypatch.setattr(grouped, "TRITON_SIZE", 16)
    wiring = Butterfly(24)
    angles, _, y, grad = problem(wiring, 1, 30, torch.float16)
    assert isinstance(gpu.prepare_training(wiring, angles, y), MadeGroups)
    actual = gpu.rotate_backward(wiring, angles, y, grad)
    expected = reference.rotate_backward(wiring, angles.double(), y.double(), grad.double())
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, 6e-4, "gradient")


@needs_kernels
def test_angle_gradients_have_the_same_bits_every_time():
    wiring = fixed_groups(64, 16, 2)
    angles, _, y, grad = problem(wiring, 1, 500, torch.float16)
    first, second = (gpu.rotate_backward(wiring, angles, y, grad)[1] for _ in range(2))
    assert torch.equal(first, second)
