"""Machine code of chosen pairs: the bits of the loop, for every action, dtype and number of vectors."""

import numpy as np
import pytest
import torch
from cases import WIRINGS, normal, random_angles
from cpu_checks import EXTREME_ANGLES, check_all

from swallowtail import Pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import launch, promotion, straight

pytestmark = pytest.mark.skipif(not straight.POSSIBLE, reason="machine code is written for AVX-512 only")

NAMES = [
    "pairs-17",
    "pairs-64",
    "pairs-100",
    "pairs-784",
    "grouped-64",
    "grouped-100",
    "grouped-784",
    "hub",
    "few",
]


def wiring_of(name):
    """The named one, a star, or one whose rotations touch few coordinates of many."""
    rng = np.random.default_rng(len(name))
    if name == "hub":
        return Pairs.from_sequence(90, [(7, k) for k in rng.integers(8, 90, 300)])[0]
    if name == "few":
        places = rng.choice(np.r_[5:16, 64:70, 300:309], (200, 2))
        return Pairs.from_sequence(310, places[places[:, 0] != places[:, 1]])[0]
    return WIRINGS[name]


@pytest.fixture
def at_once(monkeypatch):
    """Every wiring gets machine code, and every call of it is counted."""
    monkeypatch.setattr(promotion, "WORTH_CODE", 0)
    monkeypatch.setattr(promotion, "FEWEST", 1)
    calls = []
    for name in ("run_tiles", "run_vector"):
        run = getattr(straight, name)
        monkeypatch.setattr(straight, name, lambda *a, run=run, name=name: (calls.append(name), run(*a))[1])
    return calls


def products(wiring, angles, d, x):
    """Every form, without gradients."""
    return [
        cpu.rotate(wiring, angles, x), cpu.rotate(wiring, angles, x, True), cpu.symmetric(wiring, angles, d, x),
        cpu.quadratic(wiring, angles, d, x),
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_bits_are_those_of_the_loop(name, dtype, at_once, monkeypatch):
    wiring = wiring_of(name)
    wide = wiring.n >= (16 if dtype is torch.float32 else 8)
    for m in (1, 2, 15, 16, 49):
        angles, d = random_angles(wiring, 1, dtype=dtype), normal(1, wiring.n, dtype=dtype, seed=1)
        x = normal(1, m, wiring.n, dtype=dtype, seed=m)
        results = products(wiring, angles, d, x)
        assert len(at_once) == (4 if wide else 0)
        assert set(at_once) <= {"run_vector" if m == 1 else "run_tiles"}
        with monkeypatch.context() as context:
            context.setattr(launch, "promotion", lambda *a: None)
            for result, expected in zip(results, products(wiring, angles, d, x), strict=True):
                assert torch.equal(result, expected)
        at_once.clear()


@pytest.mark.parametrize("name", ["pairs-64", "grouped-100", "few"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_promises_of_every_back_end(name, dtype, at_once):
    for m in (1, 33):
        check_all(wiring_of(name), dtype, 2, m)
    assert at_once


@pytest.mark.parametrize("kind", EXTREME_ANGLES)
def test_plain_rotations_among_fast_ones(kind, at_once):
    """Right angles and long products: steps with four multiply-adds, and results in range."""
    wiring = wiring_of("hub")
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None]
    d, x = normal(1, wiring.n, seed=1), normal(1, 20, wiring.n, seed=2)
    for dtype, eps in ((torch.float32, 3e-6), (torch.float64, 1e-14)):
        rounded = angles.to(dtype)
        y = cpu.symmetric(wiring, rounded, d.to(dtype), x.to(dtype))
        exact = reference.symmetric(wiring, rounded.double(), d.to(dtype).double(), x.to(dtype).double())
        assert float((y.double() - exact).norm() / exact.norm()) < eps
    assert at_once


@pytest.mark.parametrize("m", [1, 20])
def test_nan_and_infinity_stay_with_whom_they_meet(m, at_once):
    """Coordinates that no path of rotations joins to a NaN keep their numbers; so do other vectors."""
    wiring = Pairs.from_sequence(
        40, [(k % 19, (k * 7 + 1) % 20) for k in range(60) if k % 19 != (k * 7 + 1) % 20]
    )[0]
    angles, d = random_angles(wiring, 1), normal(1, 40)
    x = normal(1, m, 40, seed=3)
    clean = cpu.symmetric(wiring, angles, d, x)
    for bad in (float("nan"), float("inf")):
        z = x.clone()
        z[0, 0, 3] = z[0, 0, 33] = bad
        y = cpu.symmetric(wiring, angles, d, z)
        expected = reference.symmetric(wiring, angles, d, z)
        assert torch.equal(y.isfinite(), expected.isfinite())
        assert torch.equal(y[0, 1:], clean[0, 1:])
    assert at_once


@pytest.mark.parametrize("size", [1e-36, 1e36])
@pytest.mark.parametrize("m", [1, 40])
def test_vectors_that_leave_the_range_are_mended(size, m, at_once):
    wiring = wiring_of("hub")
    angles = 1.4 * torch.ones(1, wiring.n_rotations)
    d, x = normal(1, wiring.n, dtype=torch.float32), size * normal(1, m, wiring.n, dtype=torch.float32)
    y = cpu.symmetric(wiring, angles, d, x)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert float(((y.double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max()) < 3e-6
    assert at_once
