"""Passes cover every stage once, and each program has work for its threads."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import plan

SIZES = [2, 3, 16, 17, 513, 1024, 4096, 4097, 2**13, 2**17 + 1, 2**20, 2**24, 2**27]


@pytest.mark.parametrize("n", SIZES)
def test_passes_follow_each_other_and_reach_n(n):
    passes = plan.passes_of(n)
    first = 0
    for p in passes:
        assert p.first == first
        assert 1 <= p.groups <= p.bits <= 4 * p.groups
        assert p.cols == 1 if first == 0 else 1 << first >= p.cols > 1
        first += p.bits
    assert 1 << (first - 1) < n <= 1 << first


@pytest.mark.parametrize("n", SIZES)
def test_tiles_cover_the_vector(n):
    for p in plan.passes_of(n):
        covered = plan.tiles_of(n, p) * p.cols << p.bits
        assert n <= covered < n + (1 << (p.first + p.bits))


@pytest.mark.parametrize("kind", ["one way", "both ways", "backward"])
def test_a_program_has_at_least_one_vector_and_one_warp(kind):
    for n in SIZES:
        for p in plan.passes_of(n):
            for arithmetic, storage in (
                (torch.float64, torch.float64),
                (torch.float32, torch.float32),
                (torch.float32, torch.bfloat16 if kind != "backward" else torch.float32),
            ):
                rows, warps = plan.tile_of(p, kind, arithmetic, storage)
                assert rows >= 1
                assert warps in (1, 2, 4, 8)


def test_vectors_of_513_to_1024_numbers_are_whole():
    assert plan.passes_of(513) == plan.passes_of(1024) == (plan.WHOLE,)
    assert plan.passes_of(512) != (plan.WHOLE,) != plan.passes_of(1025)
    assert plan.tiles_of(1024, plan.WHOLE) == 1


@pytest.mark.parametrize("kind", ["one way", "both ways", "backward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_thread_has_numbers_of_its_own(kind, dtype):
    """Else threads share numbers. On an H200, smaller tiles of several passes then gave wrong results."""
    for n in SIZES:
        for p in plan.passes_of(n):
            rows, warps = plan.tile_of(p, kind, dtype, dtype)
            assert (rows * p.cols) << p.bits >= 32 * warps
