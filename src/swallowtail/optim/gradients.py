"""Gradients that a step can use, and the warning where one cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from swallowtail.errors import warn_user as warn_user  # `adam` takes it from here

BAD_GRADIENT = "some gradient is NaN, infinite, or so large that its square overflows"
BAD_PARAMETER = "some parameter would become NaN or infinite"


def dense_gradient(p: Tensor) -> Tensor:
    """The gradient of ``p``, or an error that says why it cannot be used."""
    assert p.grad is not None
    if p.grad.is_sparse or p.grad.layout is not torch.strided:
        # torch's own optimisers raise a RuntimeError here, and its test suite asks for one.
        raise RuntimeError(
            f"expected dense gradients, got {p.grad.layout} for a parameter of shape {tuple(p.shape)}; "
            "try sparse=False in the embedding, or torch.optim.SparseAdam for it"
        )
    return p.grad


def largest_norm(tensors: Sequence[Tensor], order: float = 2) -> Tensor:  # shape: ()
    """The largest norm of them, NaN if any holds one; nothing waits for the device."""
    wide = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    norms = list(torch._foreach_norm(list(tensors), order, dtype=wide))
    if len({(norm.device, norm.dtype) for norm in norms}) > 1:
        norms = [norm.to(norms[0].device, torch.float64) for norm in norms]
    return torch.stack(norms).amax()


def norm_limit(tensors: Sequence[Tensor]) -> float:
    """What `largest_norm` must stay below for squares not to overflow. NaN is not below it."""
    wide = any(t.dtype == torch.float64 for t in tensors)
    return math.sqrt(torch.finfo(torch.float64 if wide else torch.float32).max)


def usable(gradients: Sequence[Tensor]) -> bool:
    """Whether a step can be taken with them; if not, warn."""
    if float(largest_norm(gradients)) < norm_limit(gradients):
        return True
    warn_skipped(BAD_GRADIENT)
    return False


def warn_skipped(reason: str) -> None:
    """Say that a step was not taken."""
    warn_user(
        f"{reason}: this step is skipped; parameters stay as they were. If it happens often, look for the layer that "
        "overflows, or lower the learning rate"
    )
