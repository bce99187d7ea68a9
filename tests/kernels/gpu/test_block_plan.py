"""Which sizes go to tensor cores, and that their blocks and strided passes cover every stage."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu.block_plan import STRIDED_TILES, STRIDED_WARPS, block_plan, strided_passes

SIZES = [16, 24, 128, 136, 256, 264, 512, 520, 784, 1024, 1032, 2048, 3000, 4096, 16384, 40960, 2**20]
SHARED_BYTES = 232448  # of a program on an H200


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["from_basis", "to_basis", "symmetric"])
@pytest.mark.parametrize("n", SIZES)
def test_blocks_and_passes_cover_every_stage_once(n, form, reverse, dtype):
    p = block_plan(n, form, reverse, dtype)
    if p is None:
        assert n > 1024
        return
    stages = p.width.bit_length() - 1
    assert 1 << stages == p.width
    for strided in strided_passes(n, p.width):
        assert strided.first == stages
        assert strided.bits in STRIDED_TILES
        assert 1 << strided.first >= strided.cols == 64 * STRIDED_WARPS
        stages += strided.bits
    assert 1 << stages >= n
    assert 1 << (stages - 1) < max(n, 16)


@pytest.mark.parametrize("form", ["from_basis", "to_basis", "symmetric"])
@pytest.mark.parametrize("n", SIZES)
def test_tiles_fit_into_shared_memory(n, form):
    """The stages, one more tile for exchanges, and the matrices that stay there."""
    p = block_plan(n, form, False, torch.float16)
    if p is not None and p.high > 1:
        if p.thirds:
            assert (p.stages + 1) * p.rows * p.width * 2 + p.width * 16 * 2 <= SHARED_BYTES
            return
        assert (p.stages + 1) * p.rows * p.width * 2 + p.shared * p.width * p.low * 2 <= SHARED_BYTES
        assert min(p.high, p.low) >= 16
        assert p.warps <= min(p.high, p.low)  # every warp has a block


def test_what_stays_with_the_other_kernels():
    plan = lambda n, form, reverse=False: block_plan(n, form, reverse, torch.bfloat16)
    assert plan(8, "from_basis") is None  # too small
    assert plan(100, "from_basis") is None  # not in pieces of 16 bytes
    assert plan(2040, "from_basis") is None  # not faster
    assert plan(4096, "symmetric", reverse=True) is None  # D would lie in a strided pass
    assert plan(4096, "symmetric") is not None


@pytest.mark.parametrize("form", ["from_basis", "to_basis"])
@pytest.mark.parametrize("n", SIZES)
def test_one_call_takes_no_product_of_pytorch(n, form):
    p = block_plan(n, form, False, torch.bfloat16, once=True)
    assert p is None or p.rows


def test_vectors_beyond_the_blocks_are_not_passed_over_twice_without_need():
    assert strided_passes(1024, 1024) == ()
    assert [p.bits for p in strided_passes(2**14, 1024)] == [4]
    assert [p.bits for p in strided_passes(2**15, 1024)] == [3, 2]
