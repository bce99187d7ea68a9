"""Products in half precision by rounds of groups of 16: any wiring whose vectors fit into shared memory.

Matrices are made from the angles on the device, by one launch. They stay there as long as the angles are valid.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.gluon.half_rounds import half_rounds_kernel
from swallowtail.kernels.gpu.half_plan import HalfPlan, barriers, half_plan, places, rows
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.sweeps import fragments_kernel
from swallowtail.wiring import Wiring

KINDS = {torch.bfloat16: "bf16", torch.float16: "fp16"}
CAPABILITY = (9, 0)  # the first with ``stmatrix``


class Tile(NamedTuple):
    """What a program takes."""

    lanes: int  # vectors
    warps: int
    programs: int  # per multiprocessor
    ahead: int = 4  # steps before their use that tables are loaded


# By the rows of shared memory that they have room for. The fastest on an H200.
TILES = {872: Tile(64, 8, 2), 1768: Tile(32, 8, 2), 3528: Tile(32, 16, 1), 7048: Tile(16, 16, 1)}


class Sweep(NamedTuple):
    """Tables of steps in the order in which they are done."""

    place: torch.Tensor  # shape: (steps · warps, 16), int32
    barrier: torch.Tensor  # shape: (steps,), int32


class Layout(NamedTuple):
    """A plan with its tables on a device."""

    plan: HalfPlan
    tile: Tile
    coordinates: torch.Tensor
    partner: torch.Tensor
    angle: torch.Tensor
    sweeps: dict[Form, tuple[Sweep, ...]]


class MadeHalf(NamedTuple):
    """The matrices of one form in one dtype."""

    layout: Layout
    form: Form
    parts: int
    matrices: torch.Tensor  # shape: (steps, warps, 256 · parts), fp16
    middle: torch.Tensor | None  # shape: (n,), float32: eigenvalues that are no part of matrices
    gain: torch.Tensor | None  # shape: (1,), int32: the logarithm of a power of two that eigenvalues lack


def suits(wiring: Wiring, dtype: torch.dtype, where: torch.device) -> bool:
    """Whether this kernel takes a rotation of vectors of a dtype."""
    return (
        dtype in KINDS
        and wiring.n % 8 == 0
        and rows(wiring.n) <= max(TILES)
        and where.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(where) >= CAPABILITY
    )


def layout_of(wiring: Wiring, where: torch.device) -> Layout:
    """The tables of a wiring. They last as long as it does: recorded launches go on reading them."""
    found: Layout | None = wiring.derived.get((layout_of, where))
    if found is None:
        found = wiring.derived[layout_of, where] = _make_layout(wiring, where)
    return found


def _make_layout(wiring: Wiring, where: torch.device) -> Layout:
    tile = next(tile for most, tile in TILES.items() if rows(wiring.n) <= most)
    plan = half_plan(wiring, tile.warps)
    constant = lambda array: device.constant(array, where)
    steps = plan.coordinates.reshape(plan.steps, -1)
    place = places(plan, wiring.n, tile.lanes).reshape(plan.steps, -1)

    def sweep(order: list[int]) -> Sweep:
        return Sweep(constant(place[order]), constant(barriers(steps[order])))

    there = list(range(plan.steps))
    back, outer = there[::-1], there[: plan.inner]
    both = [sweep(there), sweep(back)] if plan.inner == plan.steps else [sweep(there + outer[::-1])]
    sweeps: dict[Form, tuple[Sweep, ...]] = {
        "to_basis": (sweep(there),), "from_basis": (sweep(back),), "symmetric": tuple(both),
    }  # fmt: skip
    coordinates, partner, angle = (constant(a) for a in (plan.coordinates, plan.partner, plan.angle))
    return Layout(plan, tile, coordinates, partner, angle, sweeps)


def cost(wiring: Wiring, where: torch.device) -> float:
    """What Q x takes, in copies of the vectors, on an H200."""
    return 1.0 + 0.07 * layout_of(wiring, where).plan.steps


def make(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor | None, form: Form, dtype: torch.dtype
) -> MadeHalf:
    """The matrices of a form, from angles (1, K) and eigenvalues (1, n) or None. Nothing waits for the device."""
    layout = layout_of(wiring, angles.device)
    plan, both = layout.plan, form == "symmetric"
    merged = both and plan.inner < plan.steps
    total = sum(len(sweep.barrier) for sweep in layout.sweeps[form])
    # Rounding matrices to fp16 costs bf16 nothing; fp16 would lose a digit.
    parts = 2 if dtype == torch.float16 else 1
    angles, middle, gain = angles.contiguous(), None, None
    if both:
        assert eigenvalues is not None
        gain = logarithm(eigenvalues)
        middle = torch.ldexp(eigenvalues[0].float(), -gain).contiguous()
    matrices = torch.empty(total, plan.warps, 256 * parts, dtype=torch.float16, device=angles.device)
    launch(
        fragments_kernel, (len(plan.coordinates),), angles, layout.partner, layout.angle, layout.coordinates,
        angles if middle is None else middle, matrices, len(plan.partner), len(plan.coordinates), plan.warps,
        plan.inner, total, TO_BASIS=form != "from_basis", FROM_BASIS=form != "to_basis", SYMMETRIC=merged,
        PARTS=parts, warps=1,
    )  # fmt: skip
    return MadeHalf(layout, form, parts, matrices, None if merged else middle, gain)


def logarithm(eigenvalues: torch.Tensor) -> torch.Tensor:  # shape: (1,), int32
    """e, such that eigenvalues times 2^-e are at most 2, the largest at least 1, unless they are far out of range."""
    largest = eigenvalues.abs().amax().float().clamp(2.0**-100, 2.0**100)
    return torch.floor(torch.log2(largest)).int().view(1)


def apply(made: MadeHalf, x: torch.Tensor) -> torch.Tensor:
    """The product with x (1, m, n)."""
    x = x.contiguous()
    if x.data_ptr() % 16:  # accesses have 16 bytes
        x = x.clone()
    y = torch.empty_like(x)
    tile, n, sweeps = made.layout.tile, x.shape[2], made.layout.sweeps[made.form]
    first, second = sweeps[0], sweeps[-1]
    steps = len(first.barrier)
    tiles = -(-x.shape[1] // tile.lanes)
    workers = min(tiles, tile.programs * device.multiprocessors(x.device))
    words = made.matrices.view(torch.int32)
    # A kernel needs some pointer even for what it does not read.
    middle, gain = words if made.middle is None else made.middle, words if made.gain is None else made.gain
    launch(
        half_rounds_kernel, (workers,), x, y, words, first.place, first.barrier,
        words if len(sweeps) == 1 else words[steps:], second.place, second.barrier, middle, gain,
        x.shape[1], n // 8, tiles, workers, steps, len(second.barrier),
        SECOND=len(sweeps) > 1, MIDDLE=made.middle is not None, GAIN=made.gain is not None, KIND=KINDS[x.dtype],
        PARTS=made.parts, N=rows(n), LANES=tile.lanes, COLUMNS=1024 * tile.warps // tile.lanes,
        AHEAD=tile.ahead, WARPS=tile.warps,
        warps=tile.warps,
    )  # fmt: skip
    return y
