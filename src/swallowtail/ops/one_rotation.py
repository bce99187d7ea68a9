"""The shortest way to a differentiable Q x in eager mode: one rotation, any number of vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from swallowtail import checks, kernels
from swallowtail.ops import autograd
from swallowtail.ops.cache import PreparedCache
from swallowtail.ops.route import KERNEL, route
from swallowtail.wiring import Wiring


class OneRotation(torch.autograd.Function):
    """Q x for x (*batch, n) and one set of angles (K,), as `rotate` does it but with fewer nodes in the graph.

    At n = 1024, reshaping outside would cost as much as rotating a hundred vectors.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, angles: Tensor, wiring: Wiring, transpose: bool, cache: PreparedCache | None
    ) -> Tensor:
        name = kernels.select_backend(x)
        ctx.backend, ctx.wiring, ctx.transpose = kernels.load(name), wiring, transpose
        ctx.prepared = y = None
        if not ctx.backend.TAKES_ONE_ROTATION:
            form = "to_basis" if transpose else "from_basis"
            y = ctx.backend.live(form, wiring, x.contiguous(), angles, None)
        ctx.live = y is not None
        if y is None:
            y = _forward(ctx, name, x, angles, cache)
        ctx.save_for_backward(y, angles)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, angles = ctx.saved_tensors
        if grad.is_neg():  # kernels read the memory, which has the other sign
            grad = grad.resolve_neg()
        how, backward = route(y, grad, angles), ctx.backend.rotate_backward
        if how is KERNEL and ctx.live:
            gradients = ctx.backend.live_backward(ctx.wiring, y, grad, angles, ctx.transpose)
            return *gradients, None, None, None
        if how is KERNEL and ctx.backend.TAKES_ONE_ROTATION:
            gradients = backward(ctx.wiring, angles, y, grad, ctx.transpose, prepared=ctx.prepared)
            return *gradients, None, None, None
        rows = (1, -1, ctx.wiring.n)
        y, grad_rows, angles = y.view(rows), grad.reshape(rows), angles[None]
        if how is KERNEL:
            gradients = backward(ctx.wiring, angles, y, grad_rows, ctx.transpose, prepared=ctx.prepared)
        else:
            gradients = autograd.apply(
                how, "rotate_backward", y, grad_rows, angles, ctx.wiring, ctx.transpose
            )
        return gradients[0].view(grad.shape), gradients[1][0], None, None, None


def _forward(ctx: Any, name: str, x: Tensor, angles: Tensor, cache: PreparedCache | None) -> Tensor:
    """Q x or Qᵀ x with coefficients that backward will use again."""
    backend, wiring = ctx.backend, ctx.wiring
    if cache is not None:
        ctx.prepared = cache.for_training(name, wiring, angles, x)
    else:
        ctx.prepared = backend.prepare_training(wiring, angles[None], x)
    if backend.TAKES_ONE_ROTATION:
        y: Tensor = backend.rotate(wiring, angles, x, ctx.transpose, prepared=ctx.prepared)
        return y
    rows = x.reshape(1, -1, wiring.n)
    y = backend.rotate(wiring, angles[None], rows, ctx.transpose, prepared=ctx.prepared)
    return y.view(x.shape)


def is_one_rotation(x: Tensor, angles: Tensor, wiring: Wiring) -> bool:
    """Whether `OneRotation` takes these: the simplest case, checked as quickly as possible."""
    return (
        angles.ndim == 1
        and (x.dtype is angles.dtype or (x.is_cuda and x.dtype in checks.HALF))
        and angles.dtype in (torch.float32, torch.float64)
        and (angles.dtype is torch.float32 or x.dtype is torch.float64)
        and x.device == angles.device
        and x.shape[-1:] == (wiring.n,)
        and len(angles) == wiring.n_rotations
        and x.numel() > 0
        and not (x.is_neg() or angles.is_neg())
    )
