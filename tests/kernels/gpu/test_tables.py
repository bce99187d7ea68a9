"""The fast form, where the plain one takes its place, and in which order tables hold the angles."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import plan, tables
from swallowtail.wiring import Butterfly


@needs_kernels
def test_where_the_plain_form_takes_the_place_of_the_fast_one():
    """Angles at 90° have no tangent, and tiny eigenvalues leave no room for the scales."""
    wiring = Butterfly(16, reverse=True)
    angles, d, x, _ = problem(wiring, 1, 3, torch.float32)
    assert gpu.prepare(wiring, angles, d).fast
    assert not gpu.prepare(wiring, angles * 0.1, d * 1e-30).fast
    angles[0, 3] = torch.pi / 2
    assert not gpu.prepare(wiring, angles, d).fast
    y = gpu.symmetric(wiring, angles, d, x, prepared=gpu.prepare(wiring, angles))
    expected = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert_close(y, expected, 1e-6, "symmetric")


@needs_kernels
def test_large_vectors_and_small_scales():
    """In the fast form the square of a coordinate may be too large for float32 where the product is not."""
    wiring = Butterfly(16)
    angles = torch.full((1, wiring.n_rotations), 2.0**-12).acos()
    x = torch.full((1, 1, 16), 1e6)
    d = torch.linspace(-1, 2, 16)[None]
    tables = gpu.prepare(wiring, angles.to(DEVICE), d.to(DEVICE))
    assert tables.fast
    actual = gpu.quadratic(wiring, angles.to(DEVICE), d.to(DEVICE), x.to(DEVICE), prepared=tables)
    expected = reference.quadratic(wiring, angles.double(), d.double(), x.double())
    assert_close(actual.cpu(), expected, 1e-5, "quadratic")


@needs_kernels
def test_two_coefficients_in_a_word():
    """As fp16 numbers, u in the lower half; more of them than a program takes, and an odd number."""
    size = 2 * tables.TABLE_BLOCK + 33
    u, v = torch.randn(2, size, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    words = tables.packed(tables.Coefficients(u, v))
    halves = words.view(torch.float16).view(size, 2)
    assert torch.equal(halves, torch.stack([u, v], 1).half())


@needs_kernels
def test_letters_of_one_pair():
    """What the module's docstring says about u, v, scale and middle, for n = 2."""
    wiring = Butterfly(2)
    angles = torch.tensor([[0.3]], dtype=torch.float64, device=DEVICE)
    d = torch.tensor([[2.0, 5.0]], dtype=torch.float64, device=DEVICE)
    plain, fast = (gpu.prepare(wiring, angles, d, fast=fast) for fast in (False, True))
    c, s, t = torch.cos(angles), torch.sin(angles), torch.tan(angles)
    torch.testing.assert_close(torch.stack(plain.tables[0]).flatten(), torch.cat([c, s]).flatten())
    torch.testing.assert_close(torch.stack(fast.tables[0]).flatten(), torch.cat([t, t]).flatten())
    torch.testing.assert_close(fast.scale, c.expand(1, 1, 1, 2).clone())
    torch.testing.assert_close(plain.middle, d)
    torch.testing.assert_close(fast.middle, d * c**2)


@pytest.mark.parametrize("wiring", [Butterfly(13, 2), Butterfly(16, reverse=True), Butterfly(100)], ids=repr)
def test_every_angle_has_one_place_in_the_tables(wiring):
    numbers = torch.cat(
        [i.flatten() for i in tables.angle_index(wiring, torch.device("cpu"), plan.passes_of(wiring.n))]
    )
    assert sorted(numbers[numbers > 0].tolist()) == list(range(1, wiring.n_rotations + 1))


def test_a_table_has_its_numbers_by_stage_quad_position_and_pair():
    """n = 16 is one group: stage s, pair h of position 0; a quad of pairs lies side by side."""
    (index,) = tables.angle_index(Butterfly(16, reverse=True), torch.device("cpu"), plan.passes_of(16))
    assert index.shape == (1, 1, 4, 8)  # depth, tiles, stages, pairs
    assert index.flatten().tolist() == list(range(1, 33))
    (index,) = tables.angle_index(Butterfly(16), torch.device("cpu"), plan.passes_of(16))
    assert index.flip(2).flatten().tolist() == list(range(1, 33))


def test_eigenvalues_of_zero_are_in_range():
    wiring = Butterfly(4)
    angles = torch.full((1, wiring.n_rotations), 0.5)
    assert tables.prepare_fast(wiring, angles, torch.zeros(1, 4), torch.float32) is not None
    for wrong in (1e-20, 1e20, float("nan")):
        assert tables.prepare_fast(wiring, angles, torch.full((1, 4), wrong), torch.float32) is None


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("power", [-70, 70])
def test_vectors_that_the_smallest_scales_leave_room_for(power, reverse):
    """Scales of 2^-48: Qᵀx is that much larger on the way, and Q x that much smaller."""
    wiring = Butterfly(16, 2, reverse=reverse)
    angles = torch.full((1, wiring.n_rotations), 2.0**-12).acos()
    x = 2.0**power * torch.linspace(-1, 2, 32).view(1, 2, 16)
    tables = gpu.prepare(wiring, angles.to(DEVICE))
    assert tables.fast
    for transpose in (False, True):
        actual = gpu.rotate(wiring, angles.to(DEVICE), x.to(DEVICE), transpose, prepared=tables)
        expected = reference.rotate(wiring, angles.double(), x.double(), transpose)
        assert float((actual.cpu().double() - expected).norm() / expected.norm()) < 1e-6
