"""The CPU back end: the functions every back end has, over the Numba kernels and threads.

Shapes as in `reference`: x (B, m, n), angles (B, K), eigenvalues (B, n).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch

from swallowtail.kernels.cpu.backward import rotate_backward
from swallowtail.kernels.cpu.coefficients import (
    Coefficients,
    Prepared,
    in_arithmetic,
    multiply_adds,
    prepare,
)
from swallowtail.kernels.cpu.elementwise import multiply_rows, weighted_squares
from swallowtail.kernels.cpu.jit import switched_off
from swallowtail.kernels.cpu.launch import bound
from swallowtail.kernels.cpu.mend import mender_of
from swallowtail.wiring import Wiring

__all__ = [
    "TAKES_ONE_ROTATION",
    "accepts",
    "available",
    "bind",
    "live",
    "live_backward",
    "multiply_adds",
    "prepare",
    "prepare_training",
    "quadratic",
    "rotate",
    "rotate_backward",
    "symmetric",
]

Apply = Callable[[torch.Tensor, torch.Tensor], None]  # of contiguous vectors (…, n) and room for the results
BLOCK_NUMBERS = 2**17  # of a block of vectors whose rotated copies stay in cache

TAKES_ONE_ROTATION = True


def accepts(device: str) -> bool:
    """The CPU."""
    return device == "cpu"


def available() -> str | None:
    """None, or why nothing can be compiled; then a warning says that calls will be slow."""
    reason = switched_off()
    if reason is not None:
        warnings.warn(
            f"{reason}: the reference back end does the CPU's work, slowly", RuntimeWarning, stacklevel=2
        )
    return reason


def prepare_training(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Prepared:
    """Coefficients for `rotate` and then `rotate_backward`."""
    return prepare(wiring, in_arithmetic(angles), training=True)


def rotate(
    wiring: Wiring,
    angles: torch.Tensor,
    x: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q x, or Qᵀ x. One rotation, ``prepared``, takes vectors (*batch, n)."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles))
    return _apply("to_basis" if transpose else "from_basis", prepared, x, x.shape)


def symmetric(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q D Qᵀ x, each row read and written once."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles), eigenvalues)
    return _apply("symmetric", prepared, x, x.shape)


def quadratic(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, shape (B, m)."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles), eigenvalues)
    return _apply("quadratic", prepared, x, x.shape[:-1])


def bind(wiring: Wiring, form: str, prepared: Prepared) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The kernel with everything but x already looked up, for single small calls; None where there is none.

    It takes one contiguous tensor (*batch, n) of the coefficients' dtype, and checks nothing.
    """
    if len(prepared) != 1:
        return None
    c = prepared[0]
    apply = _form(form, c)

    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[:-1] if form == "quadratic" else x.shape, dtype=x.dtype)
        apply(x, out)
        return out

    if form == "quadratic" or (form == "symmetric" and c.origin.reverse):
        return call
    run, mender, n = bound(c.origin.wiring, _action(form, c), c), mender_of(c), c.origin.wiring.n

    def call_kernel(x: torch.Tensor) -> torch.Tensor:  # as `_rotate` does, with one call less
        y = torch.empty_like(x)
        flags = run(x.data_ptr(), y.data_ptr(), x.numel() // n)
        if flags:
            mender.mend(form, flags, x, y)
        return y

    return call_kernel


def live(
    form: str, wiring: Wiring, x: torch.Tensor, angles: torch.Tensor, eigenvalues: torch.Tensor | None
) -> None:
    """No shortcut: on a CPU it is quicker to compare the angles and keep the coefficients."""


def live_backward(
    wiring: Wiring, y: torch.Tensor, grad: torch.Tensor, angles: torch.Tensor, transpose: bool
) -> None:
    """No shortcut."""


def _apply(form: str, prepared: Prepared, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """One form of (B, m, n), or of any vectors where there is one rotation."""
    if not x.numel():
        return x.new_empty(shape)
    dtype = torch.float32 if prepared[0].T.dtype == np.float32 else torch.float64
    z = (x if x.dtype is dtype else x.to(dtype)).contiguous()
    y = torch.empty(shape, dtype=dtype)
    if len(prepared) == 1:
        _form(form, prepared[0])(z, y)
    else:
        for b, c in enumerate(prepared):
            _form(form, c)(z[b], y[b])
    return y if x.dtype is dtype else y.to(x.dtype)


def _form(form: str, c: Coefficients) -> Apply:
    """One form of one rotation, "to_basis", "from_basis", "symmetric" or "quadratic", as a function of (x, y).

    Whatever leaves the range on the way raises a floating-point flag, and is mended.
    """
    key = "form", form
    apply: Apply | None = c.bound.get(key)
    if apply is None:
        make = {"symmetric": _symmetric, "quadratic": _quadratic}.get(form)
        apply = c.bound[key] = make(c) if make is not None else _rotate(form, c)
    return apply


def _rotate(form: str, c: Coefficients) -> Apply:
    """A form that is a single kernel."""
    run, mender, n = bound(c.origin.wiring, _action(form, c), c), mender_of(c), c.origin.wiring.n

    def apply(x: torch.Tensor, y: torch.Tensor) -> None:
        flags = run(x.data_ptr(), y.data_ptr(), x.numel() // n)
        if flags:
            mender.mend(form, flags, x, y)

    return apply


def _symmetric(c: Coefficients) -> Apply:
    """Q D Qᵀ x. The fused kernel begins with falling strides; a reversed butterfly, which ends with them, takes two."""
    if not c.origin.reverse:
        return _rotate("symmetric", c)
    to_basis, from_basis = (bound(c.origin.wiring, _action(f, c), c) for f in ("to_basis", "from_basis"))
    d, mender, n = _eigenvalues(c), mender_of(c), c.origin.wiring.n

    def apply(x: torch.Tensor, y: torch.Tensor) -> None:
        w, count = torch.empty_like(x), x.numel() // n
        flags = to_basis(x.data_ptr(), w.data_ptr(), count)
        flags |= multiply_rows(w.view(-1, n).numpy(), d)
        flags |= from_basis(w.data_ptr(), y.data_ptr(), count)
        if flags:
            mender.mend("symmetric", flags, x, y)

    return apply


def _quadratic(c: Coefficients) -> Apply:
    """Σ S D S (M x)². A reversed butterfly's scales come first and are not part of D: Σ D (Qᵀx)²."""
    n, mender = c.origin.wiring.n, mender_of(c)
    if c.origin.reverse:
        run, weights, factor = bound(c.origin.wiring, "from_basis", c), _eigenvalues(c), 1.0
    else:
        assert c.middle is not None
        run, weights, factor = bound(c.origin.wiring, "unscaled", c), c.middle[:n], c.factor
    block, size = max(2, BLOCK_NUMBERS // n), c.T.dtype.itemsize

    def apply(x: torch.Tensor, out: torch.Tensor) -> None:
        count, flags = out.numel(), 0
        room = torch.empty(min(block, count) * n, dtype=x.dtype)
        source, rotated, sums = x.data_ptr(), room.data_ptr(), out.data_ptr()
        for start in range(0, count, block):
            part = min(block, count - start)
            flags |= run(source + start * n * size, rotated, part)
            flags |= weighted_squares(rotated, part, weights, sums + start * size)
        if factor != 1.0:
            out *= factor
        if flags:
            mender.mend("quadratic", flags, x, out)

    return apply


def _action(form: str, c: Coefficients) -> str:
    """What the kernel of the wiring that is not reversed has to do."""
    if not c.origin.reverse:
        return form
    return {"to_basis": "from_basis", "from_basis": "to_basis"}[form]


def _eigenvalues(c: Coefficients) -> np.ndarray:
    """D in the kernel's dtype."""
    assert c.origin.eigenvalues is not None
    return c.origin.eigenvalues.astype(c.T.dtype)
