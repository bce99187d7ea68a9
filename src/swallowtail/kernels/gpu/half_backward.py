"""Gradients of butterflies of 129 to 512 coordinates in half precision on tensor cores.

The gradient for x is a product with the transposed rotation (`blocks`). The angles' follow from Σ g yᵀ over all
vectors, one product of PyTorch's (`grouped`). Shorter vectors have kernels that do both at once. For longer ones, going
stage by stage is faster.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from swallowtail.kernels.gpu import blocks, calls, group_tables, grouped
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.group_plan import group_plan
from swallowtail.wiring import Butterfly, Wiring

SIZES = (129, 512)  # coordinates
Product = Callable[[Form, torch.Tensor], torch.Tensor | None]  # (form, vectors) ↦ Q x or Qᵀ x


def walk_back(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool,
    product: Product,
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Gradients for x and the angles, given y = Q x (or Qᵀ x) and its gradient, all contiguous.

    None where other kernels should do it. The launches want many vectors. Sums are taken in a fixed order. The launches
    between PyTorch's own functions are recorded like whole calls.

    Args:
        wiring: who meets whom.
        angles: shape (1, K) or (K,).
        y: shape (*batch, n).
        grad: likewise.
        transpose: y = Qᵀ x.
        product: the rotation.
    """
    if not isinstance(wiring, Butterfly) or not SIZES[0] <= wiring.n <= SIZES[1]:
        return None
    form: Form = "from_basis" if transpose else "to_basis"  # of the way back
    plan, rows, theta = group_plan(wiring, y.dtype), (1, -1, wiring.n), angles.view(-1, wiring.n_rotations)
    grad = grad.to(y.dtype)
    if plan is None or len(theta) != 1 or not blocks.suits_live(wiring, grad.view(rows), theta, form):
        return None
    grad_x = product(form, grad)
    if grad_x is None:
        return None
    layout = group_tables.layout_of(wiring, y.dtype, y.device)
    sums = grouped.sums_by_pytorch(plan, y.view(rows), grad.view(rows))
    grad_angles = calls.recorded(
        wiring,
        ("angle gradients", y.dtype, theta.dtype, transpose, y.get_device()),
        lambda sums, theta: grouped.angle_gradients(layout, theta, sums, transpose),
        sums,
        theta,
    )
    return grad_x, grad_angles.view(angles.shape)
