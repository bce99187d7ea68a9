"""The numbers of the four functions of `autograd`, by the back end in charge; nobody is watching here."""

from __future__ import annotations

from torch import Tensor

from swallowtail import kernels
from swallowtail.kernels.protocol import Backend
from swallowtail.wiring import Wiring


def rotate(x: Tensor, angles: Tensor, wiring: Wiring, transpose: bool) -> Tensor:
    """Q x, or Qᵀ x."""
    backend = kernels.backend_for(x)
    y = _live(backend, "to_basis" if transpose else "from_basis", wiring, x, angles, None)
    return backend.rotate(wiring, angles, x, transpose) if y is None else y


def rotate_backward(
    y: Tensor, grad: Tensor, angles: Tensor, wiring: Wiring, transpose: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of ⟨grad, Q x⟩ for x and the angles, from y = Q x."""
    backend = kernels.backend_for(y)
    gradients = backend.live_backward(wiring, y, grad, angles, transpose) if _is_single(y) else None
    return backend.rotate_backward(wiring, angles, y, grad, transpose) if gradients is None else gradients


def symmetric(x: Tensor, angles: Tensor, eigenvalues: Tensor, wiring: Wiring) -> Tensor:
    """Q D Qᵀ x."""
    backend = kernels.backend_for(x)
    y = _live(backend, "symmetric", wiring, x, angles, eigenvalues)
    return backend.symmetric(wiring, angles, eigenvalues, x) if y is None else y


def quadratic(x: Tensor, angles: Tensor, eigenvalues: Tensor, wiring: Wiring) -> Tensor:
    """xᵀ Q D Qᵀ x."""
    backend = kernels.backend_for(x)
    y = _live(backend, "quadratic", wiring, x, angles, eigenvalues)
    return backend.quadratic(wiring, angles, eigenvalues, x) if y is None else y


def _live(
    backend: Backend, form: str, wiring: Wiring, x: Tensor, angles: Tensor, eigenvalues: Tensor | None
) -> Tensor | None:
    """By the back end's shortcut for one rotation, if it has one."""
    return backend.live(form, wiring, x.contiguous(), angles, eigenvalues) if _is_single(x) else None


def _is_single(x: Tensor) -> bool:
    return not x.is_cpu and len(x) == 1 and x.numel() > 0
