"""How half precision goes to tensor cores: rounds of small matrices, one dense product, and passes beyond them.

The sizes and numbers of programs were the fastest on an H200 of those compared, with 2^27 numbers in bf16.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from swallowtail.kernels.gpu.plan import Pass

Form = Literal["from_basis", "to_basis", "symmetric"]  # Q x, Qᵀ x, Q D Qᵀ x


class BlockPlan(NamedTuple):
    """Column blocks of high · low coordinates, and how a program goes through them (`gluon.blocks`)."""

    high: int  # coordinates per block of the high round; 1: there is one dense matrix per column block
    low: int  # coordinates per block of the low round
    rows: int = 0  # vectors per tile; 0: PyTorch's own product
    warps: int = 0
    stages: int = 0  # tiles in shared memory
    programs: int = 0  # per multiprocessor
    shared: bool = False  # the matrices of the second round stay in shared memory
    neighbours: int = 8  # coordinates of a block that a thread has side by side
    thirds: bool = False  # three rounds on 2048 coordinates (`gluon.thirds`)

    @property
    def width(self) -> int:
        """Coordinates of a column block."""
        return 2048 if self.thirds else self.high * self.low


class StridedTile(NamedTuple):
    """What a program of a strided pass takes: one vector at a time."""

    stages: int  # vectors in shared memory
    programs: int  # per multiprocessor


STRIDED_WARPS = 4
STRIDED_TILES = {
    1: StridedTile(6, 6), 2: StridedTile(6, 3), 3: StridedTile(3, 4), 4: StridedTile(3, 2),
}  # fmt: skip
MIN_SIZE = 16  # of a matrix that tensor cores multiply
ROUNDS = (11, 12)  # stages of butterflies whose Q D Qᵀ is faster by rounds of groups


def by_rounds(n: int, depth: int, form: Form) -> bool:
    """Whether `half_rounds` is faster than the plan below, where it can run. It is also more accurate."""
    bits = (n - 1).bit_length()
    return n % 8 == 0 and (
        (depth == 1 and form == "symmetric" and bits in ROUNDS) or (depth > 1 and bits <= 12)
    )


def block_plan(n: int, form: Form, reverse: bool, dtype: torch.dtype, once: bool = False) -> BlockPlan | None:
    """The plan for vectors of n numbers; None where `plan.passes_of` is faster, or more accurate.

    With ``once`` the matrices serve one call. It then takes no product of PyTorch's, which `replay` cannot record.

    Each rounding, of a matrix or of vectors, adds about 1.7e-3 in bf16 to the relative error, as the root of a sum of
    squares. Q D Qᵀ in three rounds and two strided passes would have eight. It takes dense column blocks, which save
    four.
    """
    if n < MIN_SIZE or n % 8:  # accesses have 16 bytes
        return None
    bits, both = (n - 1).bit_length(), form == "symmetric"
    low_first = (form == "from_basis") != reverse
    if bits <= 7:
        return BlockPlan(1, max(MIN_SIZE, 1 << bits), 128, 8, *((3, 3) if bits == 7 else (4, 1)))
    if bits == 8:
        # PyTorch's product takes no factor from the device, which fp16 needs: see `block_tables.Made.gain`.
        blocks = once or (both and dtype == torch.float16)
        return BlockPlan(16, 16, 16, 4, 3, 2) if blocks else BlockPlan(1, 256)
    if bits == 9:
        return BlockPlan(16, 32, 16, 8, *((4, 1) if low_first and not both else (3, 2)))
    two_rounds = BlockPlan(32, 32, 16, 16 if low_first or both else 8, 3, 1, shared=both)
    if bits == 10:
        return two_rounds
    if both:
        width = 256 if bits <= 12 else 1024
        return None if reverse or n % width else BlockPlan(1, width)  # reversed, D lies in the strided pass
    if bits == 11:
        return BlockPlan(16, 16, 8, 16, 4, 1, thirds=True) if n == 2048 else None
    return two_rounds


def strided_passes(n: int, width: int) -> tuple[Pass, ...]:
    """The passes beyond column blocks of so many coordinates, in order of growing strides; at most 4 stages each."""
    first = width.bit_length() - 1
    rest = max(0, (n - 1).bit_length() - first)
    count = -(-rest // 4)
    passes = []
    for index in range(count):
        size = rest // count + (index < rest % count)
        passes.append(Pass(first, size, 64 * STRIDED_WARPS, 1))
        first += size
    return tuple(passes)
