"""The GPU back end: launchers of the Triton kernels. Shapes and formulas are those of `reference`.

Every function takes what `prepare` returned for the same wiring and angles as ``prepared=``, and makes it
anew otherwise. `prepare` chooses the fast form (two multiply-adds a rotation) when it is as accurate as the
plain one.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from swallowtail.wiring import Pairs, Wiring

try:
    import triton

    from swallowtail.kernels.gpu import butterfly as gpu_butterfly
    from swallowtail.kernels.gpu import pairs as gpu_pairs
    from swallowtail.kernels.gpu import tables as gpu_tables
    from swallowtail.kernels.gpu.pairs import PreparedPairs
    from swallowtail.kernels.gpu.tables import PreparedButterfly
except ImportError:  # `available` says so
    triton = None


def available() -> str | None:
    """None, or a sentence saying why this back end cannot run here."""
    if triton is None:
        return "Triton cannot be imported; install the package triton."
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "PyTorch sees no CUDA device, and TRITON_INTERPRET=1 is not set."
    return None


def prepare(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    fast: bool = True,
) -> PreparedButterfly | PreparedPairs:
    """Make the tables that the kernels read; they hold while the angles (and eigenvalues) do not change.

    Args:
        wiring: who meets whom. angles: shape (B, K). eigenvalues: shape (B, n), or None. dtype: of the
        arithmetic, float32 or float64; the angles' own unless given. fast: allow the fast form. Choosing it
        waits for the device once.
    """
    dtype = _arithmetic(dtype or angles.dtype)
    if isinstance(wiring, Pairs):
        return gpu_pairs.prepare(wiring, angles, dtype)
    if fast and wiring.n_rotations:
        prepared = gpu_tables.prepare_fast(wiring, angles, eigenvalues, dtype)
        if prepared is not None:
            return prepared
    return gpu_tables.prepare_plain(wiring, angles, eigenvalues, dtype)


def prepare_training(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Any:
    """Tables for `rotate` and then `rotate_backward`."""
    if not wiring.n_rotations or not x.numel():
        return None
    if isinstance(wiring, Pairs):
        return _plain(wiring, angles, x)
    return gpu_tables.prepare_plain(wiring, angles, None, _arithmetic(x.dtype), training=True)


def multiply_adds(wiring: Wiring, prepared: PreparedButterfly | PreparedPairs, form: str = "rotate") -> int:
    """Multiply-adds of one Q x ("rotate"), Q D Qᵀ x ("symmetric") or xᵀ Q D Qᵀ x ("quadratic") as the kernel
    does it.

    A rotation takes four in the plain form and two in the fast one, which adds a scaling by n numbers to each
    sweep; in the middle of Q D Qᵀ it is part of D.
    """
    n, rotations = wiring.n, wiring.n_rotations
    fast = isinstance(prepared, PreparedButterfly) and prepared.fast
    once = (2 if fast else 4) * rotations
    scalings = n * wiring.depth if fast else 0
    if form == "rotate":
        return once + scalings
    inner = max(0, scalings - n)
    return 2 * (once + inner) + n if form == "symmetric" else once + inner + 2 * n


def rotate(
    wiring: Wiring, angles: torch.Tensor, x: torch.Tensor, transpose: bool = False, prepared: Any = None
) -> torch.Tensor:
    """Q x, or Qᵀ x. Shapes: angles (B, K), x (B, m, n)."""
    if not wiring.n_rotations or not x.numel():
        return x.clone(memory_format=torch.contiguous_format)
    prepared = _plain(wiring, angles, x) if prepared is None else prepared
    if isinstance(wiring, Pairs):
        return gpu_pairs.launch(prepared, x, transpose, not transpose, None)
    return gpu_butterfly.launch(wiring, prepared, x, transpose, not transpose, None)


def symmetric(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any = None
) -> torch.Tensor:
    """Q D Qᵀ x in one call. Shapes: angles (B, K), eigenvalues (B, n), x (B, m, n)."""
    if not wiring.n_rotations or not x.numel():
        return (_widen(x) * _widen(eigenvalues)[:, None]).to(x.dtype)
    prepared = _plain(wiring, angles, x) if prepared is None else prepared
    if isinstance(wiring, Pairs):
        return gpu_pairs.launch(prepared, x, True, True, eigenvalues)
    prepared = _with_middle(wiring, angles, eigenvalues, prepared)
    return gpu_butterfly.launch(wiring, prepared, x, True, True, prepared.middle)


def quadratic(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any = None
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, one number a vector: it stops halfway. Shape (B, m)."""
    if not wiring.n_rotations or not x.numel() or isinstance(wiring, Pairs):
        w = rotate(wiring, angles, _widen(x), transpose=True, prepared=prepared)
        return (w * w * _widen(eigenvalues)[:, None]).sum(-1).to(x.dtype)
    prepared = _plain(wiring, angles, x) if prepared is None else prepared
    prepared = _with_middle(wiring, angles, eigenvalues, prepared)
    return gpu_butterfly.launch(wiring, prepared, x, True, False, prepared.middle, quadratic=True)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ with respect to x and the angles, given the output y = Q x (or Qᵀ x).

    Nothing was stored on the way forward; both y and grad walk back together, and an angle's gradient is the
    sum over the vectors of g_j y_i − g_i y_j. The sums are taken in a fixed order.
    """
    if not wiring.n_rotations or not y.numel():
        return grad.to(y.dtype).clone(memory_format=torch.contiguous_format), torch.zeros_like(_widen(angles))
    if prepared is None or (isinstance(prepared, PreparedButterfly) and prepared.fast):
        prepared = prepare_training(wiring, angles, y)
    y, grad = y.contiguous(), grad.contiguous()
    launch = gpu_pairs.launch_backward if isinstance(wiring, Pairs) else gpu_butterfly.launch_backward
    grad_x, grad_angles = launch(wiring, prepared, y, grad, transpose)
    return grad_x, grad_angles.to(_arithmetic(angles.dtype))


def _arithmetic(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _widen(x: torch.Tensor) -> torch.Tensor:
    return x.to(_arithmetic(x.dtype))


def _plain(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Any:
    """For a single call: the plain form is prepared without waiting for the device."""
    return prepare(wiring, angles, dtype=_arithmetic(x.dtype), fast=False)


def _with_middle(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, prepared: PreparedButterfly
) -> PreparedButterfly:
    """Prepared without eigenvalues: add them (in the fast form after a look at their range)."""
    if prepared.middle is not None:
        return prepared
    dtype = prepared.tables[0][0].dtype
    if prepared.fast:
        return prepare(wiring, angles, eigenvalues, dtype=dtype)
    return prepared._replace(middle=eigenvalues.to(dtype).contiguous())
