"""Butterflies in several passes, and vectors kept whole in registers."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_gluon, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import butterfly, device, plan
from swallowtail.wiring import Butterfly


@pytest.fixture
def small_passes(monkeypatch):
    """Small passes stand in for those of large n: a contiguous one of 2 stages, a strided one of 2 in column blocks.

    Sixteen vectors give every thread numbers of its own, as all tiles do (test_plan.py).
    """
    passes = (plan.Pass(0, 2, 1, 1), plan.Pass(2, 2, 2, 1))
    monkeypatch.setattr(plan, "passes_of", lambda n: passes)
    monkeypatch.setattr(plan, "tile_of", lambda *_: plan.Tile(16, 1))


@needs_kernels
@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("wiring", [Butterfly(16), Butterfly(13, reverse=True)], ids=repr)
def test_several_passes(small_passes, wiring, prepared):
    check(wiring, 1, 2, torch.float64, 1e-13, prepared)


@needs_kernels
def test_several_passes_in_half_precision(small_passes):
    check(Butterfly(13, 2), 1, 2, torch.bfloat16, 8e-3, True)


@needs_kernels
def test_chunks_of_rows_between_passes(small_passes, monkeypatch):
    """Two rotations, three vectors of each, two at a time (gradients: one at a time)."""
    wiring = Butterfly(13)
    monkeypatch.setattr(device, "SCRATCH_BYTES", 2 * 2 * wiring.n * 8)
    check(wiring, 2, 3, torch.float64, 1e-13, True)


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
def test_a_vector_longer_than_one_pass(reverse):
    wiring = Butterfly(4100, reverse=reverse)
    assert len(plan.passes_of(wiring.n)) == 2
    angles, d, x, _ = problem(wiring, 1, 1)
    expected = reference.symmetric(wiring, angles, d, x)
    assert_close(gpu.symmetric(wiring, angles, d, x), expected, 1e-13, "symmetric")


@needs_gluon
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "wiring",
    [Butterfly(1024), Butterfly(1024, 3, reverse=True), Butterfly(784, 2), Butterfly(513, reverse=True)],
)
def test_vectors_kept_whole_in_registers(wiring, fast, monkeypatch):
    """`whole_rotate_kernel` for half precision and Q D Qᵀ, Triton's kernel for the rest; unwritten memory is NaN."""
    launched = []
    launch = butterfly.launch
    monkeypatch.setattr(
        butterfly, "launch", lambda kernel, *a, **k: (launched.append(kernel), launch(kernel, *a, **k))
    )
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        for dtype, bound in (
            (torch.float32, 3e-7 * wiring.depth**0.5),
            (torch.bfloat16, 3e-3),
            (torch.float16, 5e-4),
        ):
            for batch, m in ((1, 1), (2, 13), (1, 301)):
                angles, d, x, _ = problem(wiring, batch, m, dtype)
                # Not by tensor cores.
                tables = gpu.prepare(wiring, angles, d, fast=fast)._replace(blocks=None)
                exact = (angles.double(), d.double(), x.double())
                launched.clear()
                for transpose in (False, True):
                    y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
                    assert_close(y, reference.rotate(wiring, exact[0], exact[2], transpose), bound, "rotate")
                y = gpu.symmetric(wiring, angles, d, x, prepared=tables)
                assert_close(y, reference.symmetric(wiring, *exact), bound, "symmetric")
                whole = [kernel is butterfly.whole_rotate_kernel for kernel in launched]
                assert whole == [dtype != torch.float32, dtype != torch.float32, True]
    finally:
        torch.use_deterministic_algorithms(False)
