"""Half precision on tensor cores: which vectors go there, and the results on a GPU."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_gluon

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import blocks, device
from swallowtail.wiring import Butterfly

SIZES = [16, 24, 128, 136, 256, 264, 512, 784, 1024, 1032, 2048, 3000, 4096, 8192, 16384]
BARS = {torch.bfloat16: (4.5e-3, 8e-3), torch.float16: (6e-4, 1.2e-3)}  # of a product; of Qᵀ Q x


@pytest.fixture
def any_number(monkeypatch):
    """Take few vectors too where there are several launches."""
    monkeypatch.setattr(blocks, "MANY", 0)


def test_several_launches_want_many_numbers(monkeypatch):
    monkeypatch.setattr(device, "multiplies_half_blocks", lambda where: True)
    suits = lambda n, m, form: blocks.suits(Butterfly(n), torch.empty(1, m, n, dtype=torch.float16), form)
    assert suits(2048, 1, "from_basis")
    assert not suits(2048, 1, "symmetric")
    assert suits(2048, 512, "symmetric")
    assert not suits(4096, 1, "to_basis")
    assert suits(4096, 256, "to_basis")


def test_which_vectors_suit(monkeypatch):
    monkeypatch.setattr(device, "multiplies_half_blocks", lambda where: True)
    suits = lambda n, x, depth=1: blocks.suits(Butterfly(n, depth), x, "from_basis")
    half = torch.zeros(2, 3, 512, dtype=torch.bfloat16)
    assert suits(512, half[:1])
    assert not suits(512, half[:1], 2)  # two sweeps
    assert not suits(512, half)  # two rotations
    assert not suits(512, half[:1].float())
    assert not suits(256, half[:1, :, ::2])
    assert not suits(504, half.flatten()[4 : 4 + 504].view(1, 1, 504))  # off the boundary
    monkeypatch.setattr(device, "multiplies_half_blocks", lambda where: False)
    assert not suits(512, half[:1])


def test_the_processor_has_no_tensor_cores():
    assert not device.multiplies_half_blocks(torch.device("cpu"))


@needs_gluon
@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_products(n, reverse, dtype, monkeypatch):
    """Random angles, every form, rows that do not fill a tile; unwritten memory is NaN."""
    taken = []
    apply = blocks.apply
    monkeypatch.setattr(blocks, "apply", lambda *a: (taken.append(a[-1]), apply(*a))[1])
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        for m in (1, 13, 301):
            _check_products(Butterfly(n, reverse=reverse), m, dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    if n <= 1024:
        assert set(taken) == {"from_basis", "to_basis", "symmetric"}


def _check_products(wiring, m, dtype):
    bar, back_bar = BARS[dtype]
    angles, d, x, _ = problem(wiring, 1, m, dtype)
    tables = gpu.prepare(wiring, angles, d)
    exact = (angles.double(), d.double(), x.double())
    y = gpu.rotate(wiring, angles, x, prepared=tables)
    assert y.dtype == dtype
    assert_close(y, reference.rotate(wiring, exact[0], exact[2]), bar, "Q x")
    assert_close(gpu.rotate(wiring, angles, y, True, prepared=tables), exact[2], back_bar, "Qᵀ Q x")
    y = gpu.rotate(wiring, angles, x, True, prepared=tables)
    assert_close(y, reference.rotate(wiring, exact[0], exact[2], True), bar, "Qᵀ x")
    y = gpu.symmetric(wiring, angles, d, x, prepared=tables)
    assert_close(y, reference.symmetric(wiring, *exact), bar, "Q D Qᵀ x")


@needs_gluon
@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize("angle", [0.0, torch.pi / 4], ids=["identity", "Hadamard"])
@pytest.mark.parametrize("n", [128, 256, 512, 1024, 4096, 16384])
def test_identity_and_hadamard(n, angle, dtype):
    wiring = Butterfly(n)
    angles = torch.full((1, wiring.n_rotations), angle, device=DEVICE)
    tables = gpu.prepare(wiring, angles)
    x = torch.randn(1, 37, n, device=DEVICE, dtype=dtype)
    y = gpu.rotate(wiring, angles, x, prepared=tables)
    if angle == 0:
        assert torch.equal(y, x)
    assert_close(y, reference.rotate(wiring, angles.double(), x.double()), BARS[dtype][0], "Q x")
    assert_close(gpu.rotate(wiring, angles, y, True, tables), x.double(), BARS[dtype][1], "Qᵀ Q x")


@needs_gluon
@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize("scale", [1e-7, 1e7])
@pytest.mark.parametrize("n", [128, 256, 1024, 4096])
def test_eigenvalues_out_of_the_range_of_fp16(n, scale):
    wiring = Butterfly(n)
    angles, d, x, _ = problem(wiring, 1, 20, torch.float16)
    x = x / scale**0.5
    y = gpu.symmetric(wiring, angles, d * scale, x, prepared=gpu.prepare(wiring, angles, d * scale))
    expected = reference.symmetric(wiring, angles.double(), d.double() * scale, x.double())
    assert_close(y, expected, 6e-4, "symmetric")
