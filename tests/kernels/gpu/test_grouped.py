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
from swallowtail.wiring import Butterfly, Pairs

BOUNDS = {torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 4.5e-3}
WIRINGS = {
    "fixed": fixed_groups(48, 16, 2),
    "uneven": fixed_groups(150, 100, 1),  # blocks that start off a 16-byte boundary
    "odd": Pairs(21, [[(0, 3), (4, 5)], [(3, 1)], [(20, 18)]]),
}


@needs_kernels
@pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("prepared", [True, False])
def test_every_function(wiring, dtype, prepared, monkeypatch):
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies no bf16")
    taken = []
    for name in ("apply", "walk_back"):
        function = getattr(grouped, name)
        record = lambda *a, name=name, function=function: (taken.append(name), function(*a))[1]
        monkeypatch.setattr(grouped, name, record)
    check(wiring, 1, 70, dtype, BOUNDS[dtype], prepared)
    # Q x and Qᵀ x and their gradients, Q D Qᵀ x, and Qᵀ x of the quadratic form.
    assert taken.count("walk_back") == 2
    assert taken.count("apply") >= 4


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("n", [3584, 4000, 4096, 13696])
def test_groups_of_128(n, dtype):
    check(fixed_groups(n, 128, 8), 1, 301, dtype, BOUNDS[dtype], True)


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
def test_small_butterflies_are_trained_by_their_matrix():
    wiring = Butterfly(24)
    angles, _, y, grad = problem(wiring, 1, 30, torch.float16)
    assert isinstance(gpu.prepare_training(wiring, angles, y), gpu.MadeGroups)
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
