"""Any pairs on the GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from interpreter import needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import check

from swallowtail.kernels.gpu import device, pairs
from swallowtail.wiring import Butterfly, Grouped, Pairs


def random_pairs(n: int, n_layers: int) -> Pairs:
    generator = np.random.default_rng(n)
    sizes = generator.integers(0, n // 2 + 1, n_layers)
    return Pairs(n, [generator.permutation(n)[: 2 * size].reshape(-1, 2) for size in sizes])


CASES = {
    "3": random_pairs(3, 4),
    "17": random_pairs(17, 9),
    "hub": Pairs(40, [[(0, k), (20 + k, 39 - k)] for k in range(1, 9)]),  # most coordinates are untouched
    "none": Pairs(4, []),
    "grouped": Grouped.from_wiring(Butterfly(7, reverse=True), size=4),
}


@needs_kernels
@pytest.mark.parametrize("wiring", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("prepared", [True, False])
def test_every_function_on_pairs(wiring, prepared):
    check(wiring, 2, 3, torch.float64, 1e-13, prepared)


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_storage_dtypes(dtype, bound):
    check(CASES["17"], 1, 5, dtype, bound, True)


@needs_kernels
@pytest.mark.parametrize("m", [0, 1])
def test_no_vector_and_one_vector(m):
    check(CASES["17"], 1, m, torch.float64, 1e-13, False)


@needs_kernels
def test_little_scratch_memory(monkeypatch):
    """One lane per block, so that a program takes several."""
    monkeypatch.setattr(device, "SCRATCH_BYTES", 1)
    monkeypatch.setattr(device, "SUMS_BYTES", 1)
    check(CASES["3"], 1, 3, torch.float64, 1e-13, True)


@pytest.mark.parametrize("slots", [1, 2, 16])
@pytest.mark.parametrize("wiring", CASES.values(), ids=CASES.keys())
def test_chunks_are_disjoint_and_in_order(wiring, slots):
    place, chunks = pairs.schedule(wiring, slots)
    assert len(set(place.tolist())) == wiring.n_rotations
    chunk = place // slots
    assert set(chunk.tolist()) == set(range(chunks))
    last = np.full(wiring.n, -1)
    for (i, j), at in zip(wiring.pairs.tolist(), chunk.tolist(), strict=True):
        assert at > last[i]
        assert at > last[j]
        last[i] = last[j] = at
