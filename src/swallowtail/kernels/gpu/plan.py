"""How a GPU goes through a butterfly: its stages in passes, and how much of a pass one program takes.

A stage is a layer of a butterfly; stages are counted from stride 1. A pass is one launch over consecutive stages. It
cuts every vector into tiles (`triton.tiles`), whose stages come in groups (`triton.groups`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch


class Pass(NamedTuple):
    """A launch over the stages with strides 2^first … 2^(first + bits − 1)."""

    first: int
    bits: int  # stages
    cols: int  # neighbouring coordinates that a tile takes along; 1 where the tile itself is contiguous
    groups: int  # groups of stages


class Tile(NamedTuple):
    """What one program takes: ``rows`` vectors of one tile, with ``warps`` warps."""

    rows: int
    warps: int


# Groups of a contiguous pass, by its stages. A group has up to four. There are so many groups that the positions M of
# each are at least as many as a program's threads. With fewer positions, threads would share them and exchange data at
# every stage.
GROUPS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 3, 9: 3, 10: 4, 11: 4, 12: 3}
MAX_BITS = 12  # of a vector that is one tile: a few such vectors fill a program's registers
CONTIGUOUS_BITS = 10  # of the contiguous pass over longer vectors
STRIDED_BITS = 7  # at most, of a strided pass over longer vectors

# Vectors of 513 to 1024 numbers are kept whole in registers by the Gluon kernels (`WHOLE_TILES`).
WHOLE = Pass(0, 10, 1, GROUPS[10])

Kind = Literal["one way", "both ways", "backward"]  # Q or Qᵀ; Q D Qᵀ; gradients

# Vectors and warps of a program, by stages. From 8 stages on (backward: at 10) these were the fastest on an H200 of
# those with 16 to 64 numbers per thread; the others were not compared. More vectors share each load of coefficients.
# More numbers per thread leave room for fewer programs.
TILES: dict[Kind, dict[int, Tile]] = {
    "one way": {
        1: Tile(512, 4), 2: Tile(256, 4), 3: Tile(256, 4), 4: Tile(128, 4), 5: Tile(64, 4), 6: Tile(32, 4),
        7: Tile(16, 4), 8: Tile(4, 2), 9: Tile(8, 4), 10: Tile(8, 8), 11: Tile(8, 8), 12: Tile(4, 4),
    },
    "both ways": {
        1: Tile(512, 4), 2: Tile(256, 4), 3: Tile(256, 4), 4: Tile(128, 4), 5: Tile(64, 4), 6: Tile(32, 4),
        7: Tile(16, 4), 8: Tile(8, 2), 9: Tile(8, 2), 10: Tile(4, 4), 11: Tile(4, 4), 12: Tile(4, 4),
    },
    "backward": {
        1: Tile(256, 4), 2: Tile(128, 4), 3: Tile(128, 4), 4: Tile(64, 4), 5: Tile(32, 4), 6: Tile(16, 4),
        7: Tile(8, 4), 8: Tile(4, 2), 9: Tile(4, 4), 10: Tile(2, 2), 11: Tile(2, 8), 12: Tile(1, 8),
    },
}  # fmt: skip
# The same for the Gluon kernels, whose vectors are whole.
WHOLE_TILES: dict[Kind, Tile] = {"one way": Tile(8, 4), "both ways": Tile(4, 4)}


class Training(NamedTuple):
    """How `gluon.backward` walks back through whole vectors: two at a time, with its sums in registers."""

    whole: Pass
    warps: int
    programs: int  # per multiprocessor, each with its own sums: as many as find room at a time
    words: bool = False  # for vectors in bf16, both coefficients of a pair come in one word


# By stages. The fastest on an H200 of those compared, with 2^26 numbers. From 7 stages on they take 1.9, 1.8, 1.9, 2.4,
# 3.2 and 3.8 copies of them in float32, and 3.1, 2.8, 3.0, 3.6, 4.1 and 5.5 copies in bf16.
TRAINING = {
    7: Training(Pass(0, 7, 1, 4), 1, 16),
    8: Training(Pass(0, 8, 1, 3), 1, 12),
    9: Training(Pass(0, 9, 1, 3), 2, 6),
    10: Training(Pass(0, 10, 1, 3), 2, 4, words=True),
    11: Training(Pass(0, 11, 1, 4), 8, 2),
    12: Training(Pass(0, 12, 1, 4), 16, 1, words=True),
}


def passes_of(n: int) -> tuple[Pass, ...]:
    """The passes over vectors of length n, in order of growing strides.

    One pass does while a tile of a few whole vectors fits into registers. Beyond that, a contiguous pass is followed by
    strided ones. A strided pass of up to four stages is one group, which exchanges nothing between threads.
    """
    bits = (n - 1).bit_length()
    if bits <= MAX_BITS:
        return (Pass(0, bits, 1, GROUPS[bits]),)
    rest = bits - CONTIGUOUS_BITS
    strided = -(-rest // STRIDED_BITS)
    passes, first = [Pass(0, CONTIGUOUS_BITS, 1, GROUPS[CONTIGUOUS_BITS])], CONTIGUOUS_BITS
    for index in range(strided):
        size = rest // strided + (index < rest % strided)
        passes.append(Pass(first, size, 64 if size == 4 else 128, -(-size // 4)))
        first += size
    return tuple(passes)


def tiles_of(n: int, p: Pass) -> int:
    """Tiles per vector of length n."""
    outer = -(-n >> (p.first + p.bits))
    return outer * max(1, (1 << p.first) // p.cols)


def tile_of(p: Pass, kind: Kind, arithmetic: torch.dtype, storage: torch.dtype) -> Tile:
    """What a program of Triton's kernels takes of a pass."""
    if p == TRAINING[10].whole:
        return Tile(8, 4)  # the forward pass before its gradient
    rows, warps = TILES[kind][p.bits] if p.cols == 1 else (max(1, 32 >> p.bits), 2 if p.cols == 64 else 4)
    if arithmetic == torch.float64:
        return Tile(max(1, rows // 2), warps)
    if storage.itemsize == 2 and warps == 8:
        # Half precision leaves the memory idle half of the time. 64 numbers per thread, in few warps, save loads of
        # coefficients.
        return Tile(rows // 2, warps // 4)
    return Tile(rows, warps)
