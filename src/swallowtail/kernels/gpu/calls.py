"""The quickest ways to a result: one rotation, contiguous vectors, launches worked out once per kind of call.

Shapes: x (*batch, n); angles (K,) or (1, K); eigenvalues (n,), (1, n) or None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from swallowtail import checks
from swallowtail.kernels.gpu import dispatch
from swallowtail.kernels.gpu.gradient_sums import whole_products
from swallowtail.kernels.gpu.replay import Replay, replayed
from swallowtail.wiring import Pairs, Wiring


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
    product: Callable[..., torch.Tensor | None],
    wiring: Wiring,
    y: torch.Tensor,
    grad: torch.Tensor,
    angles: torch.Tensor,
    transpose: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``run(wiring, transpose, y, grad, angles)``; y and its gradient are contiguous.

    ``product(form, wiring, x, angles, None)`` is `live` for the same back end.
    """
    key = (transpose, y.dtype, grad.dtype, angles.dtype, angles.shape, y.shape, y.get_device())
    kept, angles = _calls(wiring), angles.contiguous()
    found = kept.get(key)
    result: tuple[torch.Tensor, torch.Tensor] | None = None
    if type(found) is Replay:
        result = found(y, grad, angles)
    if result is not None:
        return result
    # Asked only now: it hangs on nothing but the key, so what is recorded under that does not go by sums.
    if dispatch.takes_sums(wiring, y, angles):
        return _by_sums(product, wiring, y, grad, angles, transpose)
    recorded: tuple[torch.Tensor, torch.Tensor] = replayed(
        kept, key, partial(run, wiring, transpose), y, grad, angles
    )
    return recorded


def _by_sums(
    product: Callable[..., torch.Tensor | None],
    wiring: Any,
    y: torch.Tensor,
    grad: torch.Tensor,
    angles: torch.Tensor,
    transpose: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's product of all vectors cannot be recorded, but what stands before and after it can."""
    rows, grad = (1, -1, wiring.n), grad.to(y.dtype)
    sums = whole_products(grad.view(rows), y.view(rows))
    grad_x = product("from_basis" if transpose else "to_basis", wiring, grad, angles, None)
    assert grad_x is not None  # the angles are contiguous
    key = ("sums", transpose, angles.dtype, angles.shape, sums.get_device())
    return grad_x, replayed(_calls(wiring), key, partial(_from_sums, wiring, transpose), sums, angles)


def _from_sums(wiring: Pairs, transpose: bool, sums: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    theta = angles.view(1, -1)
    prepared = dispatch.prepare_training(wiring, theta, sums.dtype)
    return dispatch.from_sums(wiring, prepared, sums, transpose).to(angles.dtype).view(angles.shape)


def _calls(wiring: Wiring) -> dict[Any, Any]:
    """Recordings live as long as the wiring: they hold addresses of tables that belong to it."""
    found: dict[Any, Any] | None = wiring.derived.get("calls")
    if found is None:
        found = wiring.derived["calls"] = {}
    return found
