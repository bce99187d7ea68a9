"""The same bits on PyTorch's threads and on Python's, and calls from several threads at once."""

import concurrent.futures

import pytest
import torch
from backend_contract import inputs
from cases import WIRINGS, assert_close

from swallowtail import Butterfly
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import launch, openmp, promotion, threads


@pytest.mark.parametrize("name", ["butterfly-784", "butterfly-64-deep", "pairs-100"])
@pytest.mark.parametrize("m", [2, 3, 33, 1001])
@pytest.mark.parametrize("with_openmp", [True, False])
def test_threads_give_the_same_bits(name, m, with_openmp, monkeypatch):
    """On PyTorch's threads, where it has some and the wiring is a butterfly, and on Python's."""
    monkeypatch.setattr(promotion, "WORTH_CODE", 10**9)  # machine code has a test of its own
    wiring, jobs = WIRINGS[name], []
    if with_openmp and not openmp.available():
        pytest.skip("this PyTorch has no OpenMP")
    start = openmp.on_threads
    monkeypatch.setattr(openmp, "on_threads", lambda *job: (jobs.append(job), start(*job)))
    if not with_openmp:
        monkeypatch.setattr(openmp, "_enter", None)
    angles, d, x, g = inputs(wiring, torch.float32, m=m)
    calls = [
        lambda: cpu.rotate(wiring, angles, x), lambda: cpu.rotate(wiring, angles, x, True),
        lambda: cpu.symmetric(wiring, angles, d, x), lambda: cpu.quadratic(wiring, angles, d, x),
        lambda: cpu.rotate_backward(wiring, angles, x, g)[0],
    ]  # fmt: skip
    expected = [call() for call in calls]
    gradient = cpu.rotate_backward(wiring, angles, x, g)[1]
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    for n_threads in (2, 3, 8):
        torch.set_num_threads(n_threads)
        for call, result in zip(calls, expected, strict=True):
            assert torch.equal(call(), result)
        # Sums over rows are taken piece by piece, so the gradient may differ by a rounding.
        assert_close(cpu.rotate_backward(wiring, angles, x, g)[1], gradient, 1e-5)
    assert bool(jobs) == (with_openmp and isinstance(wiring, Butterfly) and m > 2)  # two rows stay together


@pytest.mark.parametrize("name", ["butterfly-784", "pairs-100"])
def test_concurrent_calls_do_not_meet(name, monkeypatch):
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1000)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1000)
    torch.set_num_threads(2)
    wiring = WIRINGS[name]
    angles, d, x, g = inputs(wiring, torch.float32, B=1, m=200)
    prepared = cpu.prepare(wiring, angles, d)

    def work(k):
        z = x * 2.0**k  # powers of two change no other bit
        return (
            cpu.symmetric(wiring, angles, d, z, prepared=prepared) / 2.0**k,
            cpu.rotate(wiring, angles, z, prepared=prepared) / 2.0**k,
            cpu.rotate_backward(wiring, angles, z, g)[0],
        )

    expected = work(0)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for results in pool.map(work, [k % 5 for k in range(60)]):
            assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
