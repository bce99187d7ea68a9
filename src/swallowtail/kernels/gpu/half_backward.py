"""Gradients of butterflies of 257 to 512 coordinates in half precision on tensor cores.

The gradient for x is rounds of small matrices (`blocks`). The angles' follow from Σ g yᵀ over all vectors (`grouped`).
Shorter vectors are multiplied by one matrix (`grouped`). For longer ones, going stage by stage is faster.
"""

from __future__ import annotations

import torch

from swallowtail.kernels.gpu import block_tables, blocks, group_tables, grouped
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.group_plan import group_plan
from swallowtail.wiring import Butterfly

SIZES = (257, 512)  # coordinates


def walk_back(
    wiring: Butterfly, angles: torch.Tensor, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Gradients for x (1, m, n) and the angles (1, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous.

    None where other kernels should do it. The launches want many vectors. Sums are taken in a fixed order.
    """
    grad = grad.to(y.dtype)
    form: Form = "from_basis" if transpose else "to_basis"  # of the way back
    plan = group_plan(wiring, y.dtype) if SIZES[0] <= wiring.n <= SIZES[1] else None
    if plan is None or not blocks.suits_live(wiring, grad, angles, form):
        return None
    made = block_tables.make(wiring, angles, None, form, y.dtype)
    sums = grouped.sums_by_pytorch(plan, y, grad)
    layout = group_tables.layout_of(wiring, y.dtype, y.device)
    grad_angles = grouped.angle_gradients(layout, angles.contiguous(), sums, transpose)
    return blocks.apply(wiring, made, grad, form), grad_angles
