"""Products in half precision by rounds of groups of 16: any wiring whose vectors fit into shared memory.

Matrices are made from the angles on the device, by one launch. They stay there as long as the angles are valid.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.gluon.half_rounds import half_rounds_kernel
from swallowtail.kernels.gpu.half_plan import (
    HalfPlan,
    barriers,
    entries,
    group_places,
    half_plan,
    last_of,
    rows,
)
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.sweeps import fragments_kernel
from swallowtail.wiring import Wiring

KINDS = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class Tile(NamedTuple):
    """What a program takes."""

    lanes: int  # vectors
    warps: int
    programs: int  # per multiprocessor
    ahead: int = 4  # steps before their use that tables are loaded

    @property
    def units(self) -> int:
        """Eights of coordinates that are read at a time, of a chunk of vectors: four for each thread."""
        return 128 * self.warps // (self.lanes & -self.lanes)


# By the rows of shared memory that they have room for, for matrices in one part and in two. The fastest on an H200 of
# those that were compared. Vectors of the next tile on their way to the L2 cache would delay the matrices.
SMALL, WIDE = {824: Tile(32, 8, 4), 1104: Tile(32, 8, 3)}, {2312: Tile(32, 16, 1)}
TILES = {
    1: {**SMALL, 2056: Tile(48, 32, 1, 2), **WIDE, 4104: Tile(24, 32, 1, 2), 6152: Tile(16, 32, 1)},
    2: {
        824: Tile(32, 8, 4), 1032: Tile(48, 8, 2), 1104: Tile(32, 8, 3), 2056: Tile(48, 32, 1, 1), **WIDE,
        4104: Tile(24, 32, 1, 1), 6152: Tile(16, 16, 1),
    },
}  # fmt: skip


class Sweep(NamedTuple):
    """A plan and its tables, the steps in the order in which they are done."""

    plan: HalfPlan
    partner: torch.Tensor
    angle: torch.Tensor
    scaled: torch.Tensor  # shape: (steps · warps, 16), int32: as in `half_plan.last_of`
    place: torch.Tensor  # shape: (steps done, warps · 16), int32
    barrier: torch.Tensor  # shape: (steps done,), int32
    entry: torch.Tensor  # shape: (pieces, 32), int32

    @property
    def steps(self) -> int:
        """That are done."""
        return len(self.barrier)


class MadeHalf(NamedTuple):
    """The matrices of one form in one dtype."""

    sweep: Sweep
    tile: Tile
    parts: int
    matrices: torch.Tensor  # shape: (column blocks, steps, warps, 256 · parts), fp16
    # Logarithms of powers of two that eigenvalues lack. Shape: (column blocks,), int32.
    gain: torch.Tensor | None


def suits(wiring: Wiring, dtype: torch.dtype, where: torch.device) -> bool:
    """Whether this kernel takes a rotation of vectors of a dtype."""
    return (
        dtype in KINDS
        and wiring.n % 8 == 0
        and rows(wiring.n) <= max(TILES[1])
        and device.stores_matrices(where)
    )


def parts_of(dtype: torch.dtype) -> int:
    """Of a matrix. Rounding matrices to fp16 costs bf16 nothing; fp16 would lose a digit."""
    return 2 if dtype == torch.float16 else 1


def tile_of(n: int, dtype: torch.dtype) -> Tile:
    """What a program takes of vectors of length n."""
    return next(tile for most, tile in TILES[parts_of(dtype)].items() if rows(n) <= most)


def sweep_of(wiring: Wiring, form: Form, tile: Tile, where: torch.device) -> Sweep:
    """The tables of a wiring. They last as long as it does: recorded launches go on reading them."""
    key = (sweep_of, form, tile, where)
    found: Sweep | None = wiring.derived.get(key)
    if found is None:
        found = wiring.derived[key] = _make_sweep(wiring, form, tile, where)
    return found


def _make_sweep(wiring: Wiring, form: Form, tile: Tile, where: torch.device) -> Sweep:
    n = wiring.n
    plan = half_plan(wiring, tile.warps, complete=form == "symmetric")
    there = list(range(plan.steps))
    order = {
        "to_basis": there, "from_basis": there[::-1], "symmetric": there + there[: plan.inner][::-1],
    }[form]  # fmt: skip
    coordinates = plan.coordinates.reshape(plan.steps, -1)[order]
    place = group_places(plan, n, tile.lanes).reshape(plan.steps, -1)[order]
    entry = entries(plan, n, tile.lanes, 8 * tile.units)
    tables = (plan.partner, plan.angle, last_of(plan), place, barriers(coordinates), entry)
    return Sweep(plan, *(device.constant(table, where) for table in tables))


def cost(wiring: Wiring, form: Form, dtype: torch.dtype) -> float:
    """What a product takes, in copies of the vectors, on an H200."""
    tile = tile_of(wiring.n, dtype)
    plan = half_plan(wiring, tile.warps, complete=form == "symmetric")
    steps = plan.steps + (plan.inner if form == "symmetric" else 0)
    return 1.2 + 0.04 * steps if tile.programs > 1 else 1.5 + 0.048 * steps


def make(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor | None, form: Form, dtype: torch.dtype
) -> MadeHalf:
    """The matrices of a form, from angles (B, K) and eigenvalues (B, n) or None. Nothing waits for the device.

    B is 1, or the number of column blocks of longer vectors: these have angles of their own on the same wiring.
    """
    tile, parts = tile_of(wiring.n, dtype), parts_of(dtype)
    sweep = sweep_of(wiring, form, tile, angles.device)
    plan, columns = sweep.plan, len(angles)
    angles, gain = angles.contiguous(), None
    middle = angles
    if form == "symmetric":
        assert eigenvalues is not None
        gain = logarithm(eigenvalues)
        middle = torch.ldexp(eigenvalues.float(), -gain[:, None]).contiguous()
    matrices = torch.empty(
        columns, sweep.steps, plan.warps, 256 * parts, dtype=torch.float16, device=angles.device
    )
    launch(
        fragments_kernel, (len(plan.coordinates), columns), angles, sweep.partner, sweep.angle, sweep.scaled,
        middle, matrices, len(plan.partner), len(plan.coordinates), plan.warps, plan.inner, sweep.steps,
        wiring.n_rotations, wiring.n,
        TO_BASIS=form != "from_basis", FROM_BASIS=form != "to_basis", PARTS=parts, warps=1,
    )  # fmt: skip
    return MadeHalf(sweep, tile, parts, matrices, gain)


def logarithm(eigenvalues: torch.Tensor) -> torch.Tensor:  # shape: (B,), int32
    """For each of B rows e: times 2^-e eigenvalues are at most 2, the largest at least 1, unless far out of range.

    Every column block has its own, since matrices are fp16, whose range is small.
    """
    largest = eigenvalues.abs().amax(1).float().clamp(2.0**-100, 2.0**100)
    return torch.floor(torch.log2(largest)).int()


def apply(made: MadeHalf, x: torch.Tensor, keep: bool = True) -> torch.Tensor:
    """The product with x (1, m, n), or with its column blocks; the result replaces x, unless that is to be kept."""
    x = x.contiguous()
    if x.data_ptr() % 16:  # accesses have 16 bytes
        x = x.clone()
    y = torch.empty_like(x) if keep else x
    sweep, tile, columns = made.sweep, made.tile, len(made.matrices)
    n = x.shape[2] // columns
    tiles = -(-x.shape[1] // tile.lanes)
    workers = min(tiles, max(1, tile.programs * device.multiprocessors(x.device) // columns))
    gain = sweep.barrier if made.gain is None else made.gain  # a kernel needs some pointer
    launch(
        half_rounds_kernel, (columns * workers,), x, y, made.matrices.view(torch.int32), sweep.place, sweep.barrier,
        sweep.entry, gain, x.shape[1], n // 8, tiles, workers, sweep.steps, columns,
        GAIN=made.gain is not None, KIND=KINDS[x.dtype], PARTS=made.parts, N=rows(n), LANES=tile.lanes,
        UNITS=tile.units, AHEAD=tile.ahead, ENTRIES=len(sweep.entry), WARPS=tile.warps,
        warps=tile.warps,
    )  # fmt: skip
    return y
