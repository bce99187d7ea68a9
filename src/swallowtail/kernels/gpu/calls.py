"""The quickest ways to a result: one rotation, contiguous vectors, launches worked out once per kind of call.

Shapes: x (*batch, n); angles (K,) or (1, K); eigenvalues (n,), (1, n) or None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from swallowtail import checks
from swallowtail.kernels.gpu.replay import Replay, replayed
from swallowtail.wiring import Wiring


def bound(
    run: Callable[..., torch.Tensor], table: torch.Tensor, middle: torch.Tensor | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of x alone. ``run(x, angles, eigenvalues)`` has its tables, and does not look at the angles."""
    kept: dict[Any, Any] = {}
    where = table.device

    def function(x: torch.Tensor) -> torch.Tensor:
        return run(x, table, middle)

    def call(x: torch.Tensor) -> torch.Tensor:
        if x.device != where:  # another GPU
            checks.same_device(x=x, angles=table)
        result: torch.Tensor = replayed(kept, (x.dtype, x.shape), function, x)
        return result

    return call


def live(
    run: Callable[..., torch.Tensor],
    wiring: Wiring,
    form: str,
    x: torch.Tensor,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
) -> torch.Tensor | None:
    """``run(wiring, form, None, x, angles, eigenvalues)``; None where the tensors do not suit."""
    if not angles.is_contiguous() or not (eigenvalues is None or eigenvalues.is_contiguous()):
        return None
    key = (form, x.dtype, angles.dtype, x.shape, x.get_device())
    kept = _calls(wiring)
    found = kept.get(key)
    result: torch.Tensor | None = None
    if type(found) is Replay:
        result = found(x, angles, eigenvalues)
    if result is None:
        result = replayed(kept, key, partial(run, wiring, form, None), x, angles, eigenvalues)
    return result


def live_backward(
    run: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    wiring: Wiring,
    y: torch.Tensor,
    grad: torch.Tensor,
    angles: torch.Tensor,
    transpose: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``run(wiring, transpose, y, grad, angles)``; y and its gradient are contiguous."""
    key = (transpose, y.dtype, grad.dtype, angles.dtype, angles.shape, y.shape, y.get_device())
    kept, angles = _calls(wiring), angles.contiguous()
    found = kept.get(key)
    result: tuple[torch.Tensor, torch.Tensor] | None = None
    if type(found) is Replay:
        result = found(y, grad, angles)
    if result is None:
        result = replayed(kept, key, partial(run, wiring, transpose), y, grad, angles)
    return result


def _calls(wiring: Wiring) -> dict[Any, Any]:
    """Recordings live as long as the wiring: they hold addresses of tables that belong to it."""
    found: dict[Any, Any] | None = wiring.derived.get("calls")
    if found is None:
        found = wiring.derived["calls"] = {}
    return found
