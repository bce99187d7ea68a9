"""The matrices of a block-diagonal rotation, made on the device from the angles in one launch. Nothing waits for it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from swallowtail.kernels.gpu.block_tables import power_of_two
from swallowtail.kernels.gpu.device import capturing, constant
from swallowtail.kernels.gpu.group_plan import TRITON_SIZE, GroupPlan, group_plan
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.sweeps import matrices_kernel
from swallowtail.wiring import Wiring

COLUMNS = 16  # of a matrix that one program makes


class Layout(NamedTuple):
    """A plan with its tables on a device."""

    plan: GroupPlan
    starts: torch.Tensor
    partner: torch.Tensor
    angle: torch.Tensor


class MadeGroups(NamedTuple):
    """The matrices of one form in one dtype."""

    layout: Layout
    angles: torch.Tensor  # shape: (1, K): what they were made from
    matrices: torch.Tensor  # shape: (blocks, size, size): to, from
    gain: torch.Tensor | None  # shape: (1,): as in `block_tables.Made`


class GroupTables:
    """Makes matrices when they are first asked for, and keeps them as long as the angles are valid.

    Args:
        wiring: one that `group_plan` has a plan for.
        angles: shape (1, K).
        eigenvalues: shape (1, n), or None.
    """

    def __init__(self, wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor | None) -> None:
        self._wiring = wiring
        self._angles = angles.detach()
        self._eigenvalues = None if eigenvalues is None else eigenvalues.detach()
        self._made: dict[tuple[bool, torch.dtype], MadeGroups] = {}

    def get(self, symmetric: bool, dtype: torch.dtype) -> MadeGroups:
        """The matrices of Q, or of Q D Qᵀ, for vectors of a dtype."""
        kept = self._made.get((symmetric, dtype))
        if kept is None:
            kept = make(self._wiring, self._angles, self._eigenvalues if symmetric else None, dtype)
            # Within a graph that is being recorded, nothing is computed yet: others must not read it.
            if not capturing(self._angles.device):
                self._made[symmetric, dtype] = kept
        return kept


@cache  # never dropped: recorded launches go on reading it
def layout_of(wiring: Wiring, dtype: torch.dtype, device: torch.device) -> Layout:
    """The tables of a wiring for vectors of a dtype."""
    plan = group_plan(wiring, dtype)
    assert plan is not None  # `grouped.suits` asked before
    return Layout(plan, *(constant(a, device) for a in (plan.starts, plan.partner, plan.angle)))


def make(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor | None, dtype: torch.dtype
) -> MadeGroups:
    """The matrices of Q; with eigenvalues (1, n), of Q D Qᵀ. They are made in float32 and rounded once."""
    layout = layout_of(wiring, dtype, angles.device)
    plan = layout.plan
    angles = angles.contiguous()
    gain, middle = None, angles
    if eigenvalues is not None:
        middle = eigenvalues.contiguous()
        if dtype == torch.float16:  # bf16 has the range of float32
            gain = power_of_two(middle.float())
            middle = middle.float() / gain
    matrices = torch.empty(plan.n_blocks, plan.size, plan.size, dtype=dtype, device=angles.device)
    large = plan.size > TRITON_SIZE
    launch(
        matrices_kernel, (plan.n_blocks, plan.size // COLUMNS), angles, layout.partner, layout.angle, layout.starts,
        middle, matrices, matrices, len(plan.partner), plan.n_blocks,
        SYMMETRIC=eigenvalues is not None, BOTH=False, SIZE=plan.size, COLS=COLUMNS, warps=8 if large else 4,
    )  # fmt: skip
    return MadeGroups(layout, angles, matrices, gain)
