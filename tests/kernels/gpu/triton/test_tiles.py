"""Tiles: every coordinate is loaded and stored once, whatever the layout."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

import triton
import triton.language as tl

from swallowtail.kernels.gpu import plan
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.tiles import load_diagonal, load_tile, store_tile


@triton.jit
def diagonal_kernel(
    x_ptr, y_ptr, diagonal_ptr, n, n_rows, tiles, IN: tl.constexpr, OUT: tl.constexpr, EVEN: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y = diagonal · x, tile by tile."""
    tile = tl.program_id(0) % tiles
    rows = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x = load_tile(x_ptr, rows, tile, n, n_rows, tl.float32, IN, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE)
    x = x * load_diagonal(diagonal_ptr, tile, n, EVEN, BITS, COLS, STRIDE)
    store_tile(y_ptr, x, rows, tile, n, n_rows, OUT, EVEN, GROUPS, BITS, COLS, ROWS, STRIDE)


@needs_kernels
@pytest.mark.parametrize("n", [64, 61, 33])
@pytest.mark.parametrize(
    "p", [plan.Pass(0, 6, 1, 2), plan.Pass(0, 3, 1, 1), plan.Pass(3, 2, 4, 1), plan.Pass(4, 2, 16, 2)]
)
def test_every_coordinate_once(p, n):
    m, rows = 3, 2
    x, diagonal = torch.randn(m, n, device=DEVICE), torch.randn(n, device=DEVICE)
    tiles, even = plan.tiles_of(n, p), n % (1 << (p.first + p.bits)) == 0
    for group_in in range(-1, p.groups):
        y = torch.full_like(x, torch.nan)
        launch(
            diagonal_kernel, (-(-m // rows) * tiles,), x, y, diagonal, n, m, tiles,
            IN=group_in, OUT=p.groups - 1 if group_in < 0 else -1, EVEN=even,
            GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=rows,
        )  # fmt: skip
        assert torch.equal(y, x * diagonal)
