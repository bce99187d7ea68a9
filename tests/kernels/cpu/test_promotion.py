"""Wirings get machine code when they have rotated enough vectors, and only where it can run."""

import pytest
import torch
from cases import WIRINGS, normal, random_angles

from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import openmp, promotion, straight

pytestmark = pytest.mark.skipif(not straight.POSSIBLE, reason="machine code is written for AVX-512 only")

WIRING, CODE_OF = WIRINGS["pairs-64"], straight.code_of


@pytest.fixture
def codes(monkeypatch):
    """The actions that code is made for, with no history of the wiring."""
    promotion._history.cache_clear()
    CODE_OF.cache_clear()
    made = []
    monkeypatch.setattr(straight, "code_of", lambda *a: (made.append((a[1], a[4])), CODE_OF(*a))[1])
    yield made
    promotion._history.cache_clear()  # of a wiring that was refused code


@pytest.mark.parametrize(("m", "calls"), [(1, promotion.WORTH_CODE // promotion.ALONE), (1024, 4), (5000, 1)])
def test_code_is_made_when_it_would_have_paid(m, calls, codes):
    prepared = cpu.prepare(WIRING, random_angles(WIRING, 1, dtype=torch.float32))
    x = normal(1, m, WIRING.n, dtype=torch.float32)
    for _ in range(calls - 1):
        cpu.rotate(WIRING, x, x, prepared=prepared)
    assert codes == []
    for _ in range(3):
        cpu.rotate(WIRING, x, x, prepared=prepared)
    assert codes == [("from_basis", m == 1)]


def test_new_angles_need_no_new_code(codes):
    x = normal(1, 5000, WIRING.n, dtype=torch.float32)
    for seed in range(3):
        cpu.rotate(WIRING, random_angles(WIRING, 1, dtype=torch.float32, seed=seed), x)
    assert codes == [("from_basis", False)] * 3
    assert CODE_OF.cache_info().misses == 1


def test_memory_that_cannot_be_executed_costs_only_speed(codes, monkeypatch):
    def refuse(machine_code):
        raise OSError(13, "memory cannot be made executable")

    angles, x = random_angles(WIRING, 1, dtype=torch.float32), normal(1, 5000, WIRING.n, dtype=torch.float32)
    expected = cpu.rotate(WIRING, angles, x)
    CODE_OF.cache_clear()
    monkeypatch.setattr(straight, "Code", refuse)
    promotion._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="cannot be made executable"):
        assert torch.equal(cpu.rotate(WIRING, angles, x), expected)
    assert torch.equal(cpu.rotate(WIRING, angles, x), expected)  # and it is not tried again


@pytest.mark.parametrize("with_openmp", [True, False])
@pytest.mark.parametrize("m", [33, 1000])
def test_threads_give_the_same_bits(with_openmp, m, monkeypatch):
    if with_openmp and not openmp.available():
        pytest.skip("this PyTorch has no OpenMP")
    monkeypatch.setattr(promotion, "WORTH_CODE", 0)
    angles, d = random_angles(WIRING, 1, dtype=torch.float32), normal(1, WIRING.n, dtype=torch.float32)
    x = normal(1, m, WIRING.n, dtype=torch.float32)
    x[0, m // 2] *= 1e-30  # raises a flag, on whatever thread
    expected = cpu.symmetric(WIRING, angles, d, x)
    monkeypatch.setattr(promotion, "CODE_WORTH_A_THREAD", 1)
    monkeypatch.setattr("swallowtail.kernels.cpu.threads.WORTH_A_THREAD", 1)
    if not with_openmp:
        monkeypatch.setattr(openmp, "_enter", None)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(cpu.symmetric(WIRING, angles, d, x), expected)
