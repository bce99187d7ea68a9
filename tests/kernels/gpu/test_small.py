"""One launch that makes its own coefficients, against the reference."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend, plan, small
from swallowtail.kernels.protocol import FORMS
from swallowtail.wiring import Butterfly


def expected(wiring, form, angles, d, x):
    angles, d, x = angles.double(), d.double(), x.double()
    if form in ("symmetric", "quadratic"):
        return getattr(reference, form)(wiring, angles, d, x)
    return reference.rotate(wiring, angles, x, form == "to_basis")


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "wiring", [Butterfly(2), Butterfly(13, 3), Butterfly(64, 2, reverse=True), Butterfly(300)], ids=repr
)
def test_every_form(wiring, form):
    for dtype, bound in ((torch.float32, 6e-7), (torch.bfloat16, 8e-3)):
        angles, d, x, _ = problem(wiring, 1, 5, dtype)
        assert small.suits(wiring, x, angles)
        actual = small.apply(wiring, angles, d if form in ("symmetric", "quadratic") else None, x, form)
        assert actual.dtype == dtype
        assert_close(actual, expected(wiring, form, angles, d, x), bound, f"{form} {dtype}")


@needs_kernels
def test_changed_angles_are_followed():
    wiring = Butterfly(16)
    angles, d, x, _ = problem(wiring, 1, 3, torch.float32)
    for _ in range(3):
        angles.add_(0.5)
        for form in FORMS:
            more = d[0] if form in ("symmetric", "quadratic") else None
            actual = backend.live(form, wiring, x[0], angles[0], more)
            assert_close(actual, expected(wiring, form, angles, d, x)[0], 6e-7, form)


def test_what_suits():
    x, angles = torch.zeros(1, 4, 64), torch.zeros(1, 192)
    wiring = Butterfly(64)
    assert small.suits(wiring, x, angles)
    assert not small.suits(wiring, x.double(), angles.double())
    assert not small.suits(wiring, torch.zeros(2, 4, 64), torch.zeros(2, 192))
    assert not small.suits(wiring, torch.zeros(1, 4096, 64), angles)
    long = Butterfly(2 << plan.MAX_BITS)
    assert not small.suits(long, torch.zeros(1, 1, long.n), torch.zeros(1, long.n_rotations))


@needs_kernels
def test_gradients_of_one_call():
    """As a layer's backward pass has them."""
    for wiring in (Butterfly(12, 2), Butterfly(33)):
        angles, _, x, grad = problem(wiring, 1, 6, torch.float32)
        for transpose in (False, True):
            form = "to_basis" if transpose else "from_basis"
            y = backend.live(form, wiring, x[0].view(2, 3, -1), angles[0], None)
            actual = backend.live_backward(wiring, y, grad[0].view(2, 3, -1), angles[0], transpose)
            truth = reference.rotate_backward(
                wiring, angles.double(), y.double().view(1, 6, -1), grad.double(), transpose
            )
            assert_close(actual[0].view(6, -1), truth[0][0], 1e-6, "x")
            assert_close(actual[1], truth[1][0], 1e-6, "angles")
