"""Gradients of rounds of groups, by one kernel for x and the sums of every group, and one for the angles."""

from __future__ import annotations

import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.gluon.round_gradients import SHARES, round_gradients_kernel
from swallowtail.kernels.gpu.gradient_sums import added, angle_gradients
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.round_plan import wide_places
from swallowtail.kernels.gpu.rounds import HALF_OF_SHARED, MadeRounds, RoundLayout, rows
from swallowtail.wiring import Pairs

FEW, MOST = 16, 32  # vectors per tile
SUMS = 64 << 20  # bytes of memory for the sums of all programs


def suits(wiring: Pairs, where: torch.device) -> bool:
    """Whether vectors and their gradients find room in shared memory, where `rounds.suits`."""
    return _bytes(wiring.n, FEW) <= 2 * HALF_OF_SHARED <= device.shared_memory(where)


def walk_back(
    made: MadeRounds, wiring: Pairs, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x (1, m, n) and the angles (1, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous."""
    grad_x = torch.empty_like(y)
    return grad_x, _angle_gradients(made, wiring, y, grad, grad_x, transpose)


def from_sums(made: MadeRounds, wiring: Pairs, sums: torch.Tensor, transpose: bool) -> torch.Tensor:
    """Those for the angles, given S = Σ g yᵀ over all vectors, (1, n, n): its rows walk back, and unit vectors."""
    return _angle_gradients(made, wiring, sums, None, sums, transpose)


def _angle_gradients(
    made: MadeRounds,
    wiring: Pairs,
    y: torch.Tensor,
    grad: torch.Tensor | None,
    out: torch.Tensor,
    transpose: bool,
) -> torch.Tensor:
    layout, (m, n) = made.layout, y.shape[1:]
    size, groups = layout.plan.shape[:2]
    steps, workers = layout.plan.steps, device.multiprocessors(y.device)
    unit, warps = 4 if n % 4 == 0 else 1, groups * SHARES.value
    # Registers leave room for 16 warps per multiprocessor. Many vectors share loads of matrices, and add up fewer sums.
    many = warps == 16 and _bytes(n, MOST) <= 2 * HALF_OF_SHARED and m >= MOST * workers
    lanes = MOST if many else FEW
    fit = 2 if warps == 8 and _bytes(n, lanes) <= HALF_OF_SHARED else 1
    tiles, room = -(-m // lanes), max(1, SUMS // (steps * groups * size * size * 4))
    programs = min(tiles, fit * workers, room)
    sums = torch.empty(programs, steps * groups, size, size, dtype=torch.float32, device=y.device)
    launch(
        round_gradients_kernel, (programs,), y, out if grad is None else grad, out,
        made.from_basis if transpose else made.to_basis, _places(layout, wiring, lanes), sums,
        m, n // unit, steps, tiles, programs,
        TRANSPOSE=transpose, SUMS=grad is None, EXACT=device.float32_products() == "tf32x3",
        VECTORS=device.adds_pairs(y.device), UNIT=unit, N=rows(n), SIZE=size, LANES=lanes, COLUMNS=16 * warps,
        GROUPS=groups, WARPS=warps, warps=warps,
    )  # fmt: skip
    return angle_gradients(layout.partner, layout.angle, made.angles, added(sums), transpose)


def _places(layout: RoundLayout, wiring: Pairs, lanes: int) -> torch.Tensor:
    """Where rows begin. The table lasts as long as the wiring: recorded launches go on reading it."""
    where = layout.partner.device
    found: torch.Tensor | None = wiring.derived.get((_places, lanes, where))
    if found is None:
        table = device.constant(wide_places(layout.plan, wiring.n, lanes), where)
        found = wiring.derived[_places, lanes, where] = table
    return found


def _bytes(n: int, lanes: int) -> int:
    """Of shared memory."""
    return 8 * lanes * rows(n)
