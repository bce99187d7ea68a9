"""Gradients of pairs and grouped rounds, on a GPU."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_gluon

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import check_backward, problem
from kernels.gpu.grouping import free_groups

from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import grouped, round_backward
from swallowtail.kernels.gpu.round_plan import SHAPES, round_plan
from swallowtail.wiring import Pairs

BOUNDS = {torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 4.5e-3}
CHAIN = Pairs.from_sequence(300, [(0, k) for k in range(1, 300)])[0]
HUBS = Pairs.from_sequence(300, [(k % 7, 7 + k % 293) for k in range(600)])[0]


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    ("wiring", "m"),
    [(free_groups(784, 16, 3), 40), (free_groups(1001, 16, 2), 70), (free_groups(784, 16, 2), 5000),
     (free_groups(1700, 16, 2), 33), (CHAIN, 50), (HUBS, 1000), (free_groups(4096, 16, 1), 9000)],
    ids=["784", "1001", "many vectors", "1700", "chain", "hubs", "4096"],
)  # fmt: skip
def test_gradients(wiring, m, transpose, dtype, monkeypatch):
    taken = []
    for name in ("walk_back", "from_sums"):
        run = getattr(round_backward, name)
        monkeypatch.setattr(round_backward, name, lambda *a, n=name, r=run: (taken.append(n), r(*a))[1])
    angles, _, y, grad = problem(wiring, 1, m, dtype)
    check_backward(wiring, angles, y, grad, transpose, None, BOUNDS[dtype])
    # Longer vectors find no room in shared memory. Few coordinates are one dense matrix in half precision.
    assert bool(taken) == (wiring.n < 1800 and not grouped.suits(wiring, angles, dtype))
    if taken:
        assert taken == ["from_sums" if m >= 2 * wiring.n and dtype != torch.float32 else "walk_back"]


@needs_gluon
def test_the_same_bits_every_time():
    wiring = free_groups(784, 16, 3)
    angles, _, y, grad = problem(wiring, 1, 20_000, torch.float32)
    first, *others = (gpu.rotate_backward(wiring, angles, y, grad) for _ in range(3))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_groups_of_both_sizes_are_tried():
    assert {round_plan(w, SHAPES).shape.size for w in (free_groups(784, 16, 3), CHAIN, HUBS)} == {16, 32}
