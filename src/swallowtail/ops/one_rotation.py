"""The shortest way to a differentiable Q x in eager mode: one rotation, any number of vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from swallowtail import kernels
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
        if cache is not None:
            ctx.prepared = cache.for_training(name, wiring, angles, x)
        else:
            ctx.prepared = ctx.backend.prepare_training(wiring, angles[None], x)
        if ctx.backend.TAKES_ONE_ROTATION:
            y = ctx.backend.rotate(wiring, angles, x, transpose, prepared=ctx.prepared)
        else:
            rows = x.reshape(1, -1, wiring.n)
            y = ctx.backend.rotate(wiring, angles[None], rows, transpose, prepared=ctx.prepared).view(x.shape)
        ctx.save_for_backward(y, angles)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, angles = ctx.saved_tensors
        grad = grad.resolve_neg()
        how, backward = route(y, grad, angles), ctx.backend.rotate_backward
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


def is_one_rotation(x: Tensor, angles: Tensor, wiring: Wiring) -> bool:
    """Whether `OneRotation` takes these: the simplest case, checked as quickly as possible."""
    return (
        angles.ndim == 1
        and x.dtype is angles.dtype
        and x.dtype in (torch.float32, torch.float64)
        and x.device == angles.device
        and x.shape[-1:] == (wiring.n,)
        and len(angles) == wiring.n_rotations
        and x.numel() > 0
        and not (x.is_neg() or angles.is_neg())
    )
