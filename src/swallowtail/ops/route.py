"""Who is watching this call? Asked once per call, here, above all back ends; backward passes ask here too."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import Parameter

from swallowtail.errors import ArgumentError
from swallowtail.ops.torch_private import (
    active_transformation,
    in_forward_mode,
    is_recording,
    n_dispatch_modes,
    nothing_active,
)


class Route(Enum):
    """The four ways to a result. The numbers are the same on each."""

    KERNEL = "only the numbers are wanted: call the kernel at once"
    EAGER = "reverse-mode autograd in eager mode: an autograd.Function with little overhead"
    TRANSFORMED = "torch.func or forward mode: an autograd.Function with vmap and jvp rules"
    TRACED = "a compiler, an exporter, a dispatch mode or a tensor subclass: a torch.library operator"


# By name: Python 3.11 takes longer to look up a member of an Enum than to compare with it.
KERNEL, EAGER, TRANSFORMED, TRACED = Route
_grad_enabled = torch.is_grad_enabled  # looking it up on every call would cost as much as the call


def route(*tensors: Any) -> Route:
    """Decide how to compute something from these tensors. What is no tensor at all counts as traced."""
    if is_compiling():
        return TRACED
    wants_gradient, grad_enabled = False, _grad_enabled()
    for tensor in tensors:
        kind = type(tensor)
        if kind is not Tensor and kind is not Parameter:
            return TRACED
        if grad_enabled and tensor.requires_grad:
            wants_gradient = True
    if not nothing_active():
        if is_recording():
            hint = "try torch.export.export(module, (x,))"
            raise ArgumentError("", "torch.compile or torch.export", "torch.jit.trace", hint)
        if n_dispatch_modes():
            return TRACED
        if active_transformation() is not None or in_forward_mode():
            return TRANSFORMED
    return EAGER if wants_gradient else KERNEL
