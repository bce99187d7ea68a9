"""A transform of vectors taken into the weight of a Linear, from either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.errors import ArgumentError


def check_linear(linear: Any, side: str, n: int) -> None:
    """Check that the weight can take a transform of n coordinates on this side, "input" or "output"."""
    hint = "try the torch.nn.Linear inside it, or keep the layer beside it: Sequential(layer, module)"
    if not isinstance(linear, torch.nn.Linear):
        kind = type(linear)  # with its module: PyTorch has several that are called Linear
        raise ArgumentError("linear", "a torch.nn.Linear", f"{kind.__module__}.{kind.__qualname__}", hint)
    if linear._parameters.get("weight") is None:
        hint = "try parametrize.remove_parametrizations of torch.nn.utils first, or prune.remove"
        got = "one that is computed from others on every call: writing into it would be lost"
        raise ArgumentError("linear", "a weight that is a parameter", got, hint)
    if not linear.weight.dtype.is_floating_point:
        hint = "try it before the weight is quantised, or dequantise the weight first"
        raise ArgumentError("linear", "a weight of floating-point numbers", linear.weight.dtype, hint)
    checks.choice("side", side, ("input", "output"))
    size = linear.in_features if side == "input" else linear.out_features
    if size != n:
        raise ArgumentError("linear", f"{n} {side} features", size, "try the other side, or another wiring")


# In float64, whatever the weight's dtype: the only rounding is the one to the weight's dtype at the end.
def transform_rows(linear: torch.nn.Linear, function: Callable[[Tensor], Tensor]) -> None:
    """Apply ``function`` to the rows of the weight, in place: they face the inputs."""
    with torch.no_grad():
        linear.weight.copy_(function(linear.weight.double()))


def transform_columns(linear: torch.nn.Linear, function: Callable[[Tensor], Tensor]) -> None:
    """Apply ``function`` to the columns of the weight and to the bias, in place: they face the outputs."""
    with torch.no_grad():
        linear.weight.copy_(function(linear.weight.double().mT.contiguous()).mT)
        if linear.bias is not None:
            linear.bias.copy_(function(linear.bias.double()))
