"""Every private name of PyTorch that the package uses.

A silent change in one of them could mean missing gradients, so each has a test that fails loudly
(tests/ops/test_torch_private.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

# The innermost transformation of torch.func (vmap, grad, jvp, functionalize) that is active, or None.
active_transformation = torch._C._functorch.peek_interpreter_stack


def n_forward_levels() -> int:
    """How many torch.func.jvp transformations are active, one inside the other."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(interpreter.key() == torch._C._functorch.TransformType.Jvp for interpreter in stack)


# How many TorchDispatchModes are active: FakeTensorMode, FlopCounterMode, make_fx, a user's own.
n_dispatch_modes = torch._C._len_torch_dispatch_stack


# Whether torch.jit.trace is recording.
is_recording = torch._C._is_tracing


def nothing_active() -> bool:
    """Whether no mode, transformation, dual level or recording is active: the usual case, told by one call."""
    return (
        not n_dispatch_modes()
        and active_transformation() is None
        and forward_ad._current_level < 0
        and not is_recording()
    )


def in_forward_mode() -> bool:
    """Whether tensors may carry tangents now: a `torch.autograd.forward_ad.dual_level` is active and not switched off.

    PyTorch switches it off inside ``forward`` of an autograd.Function.
    """
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


Function = TypeVar("Function", bound=Callable[..., Any])


def constant_result(function: Function) -> Function:
    """As ``torch.compiler.assume_constant_result``, which imports the compiler: that takes a second."""
    vars(function)["_dynamo_marked_constant"] = True
    return function
