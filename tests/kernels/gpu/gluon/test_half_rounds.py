"""The Gluon kernel for rounds of groups in half precision, compiled for an H200."""

from __future__ import annotations

from itertools import cycle

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import half_rounds
from swallowtail.kernels.gpu.gluon.half_rounds import half_rounds_kernel
from swallowtail.kernels.gpu.half_plan import SPARE

CASES = [
    (parts, most, tile, gain)
    for parts, tiles in half_rounds.TILES.items()
    for (most, tile), gain in zip(tiles.items(), cycle([True, False]))
]


@needs_compiler
@pytest.mark.parametrize(("parts", "most", "tile", "gain"), CASES)
def test_compiled(parts, most, tile, gain):
    n, columns = most - SPARE, 8 * tile.units
    entries = -(-n // columns) * columns // 32
    constants = {
        "GAIN": gain, "KIND": "bf16" if parts == 1 else "fp16", "PARTS": parts, "N": most, "LANES": tile.lanes,
        "UNITS": tile.units, "AHEAD": tile.ahead, "ENTRIES": entries, "WARPS": tile.warps,
    }  # fmt: skip
    tables = ("matrix_ptr", "place_ptr", "flag_ptr", "entry_ptr", "gain_ptr")
    kind = "*bf16" if parts == 1 else "*fp16"
    kinds = {"x_ptr": kind, "y_ptr": kind} | dict.fromkeys(tables, "*i32")
    found = compile_for_h200(half_rounds_kernel, tile.warps, constants, kinds)
    assert found.metadata.shared == most * tile.lanes * 2 + 512 + 128 * entries
    # So many steps in a row.
    assert found.asm["ptx"].count("mma.sync") == tile.ahead * parts * tile.lanes // 8
