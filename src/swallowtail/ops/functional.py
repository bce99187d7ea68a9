"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x, above all back ends.

Vectors lie on the last axis. `route` decides once per call how to go on. Calls that need no gradient go straight to a
kernel; the others go through `autograd`. Backward passes rebuild activations by running the rotation the other way:
they store none.

x3, angles2 and d2 are x, angles and eigenvalues in the kernels' shapes, of three and two axes (`shapes.canonical`).
"""

from __future__ import annotations

from torch import Tensor

from swallowtail import kernels
from swallowtail.ops import autograd
from swallowtail.ops.cache import PreparedCache
from swallowtail.ops.one_rotation import OneRotation, is_one_rotation
from swallowtail.ops.route import EAGER, KERNEL, Route, route
from swallowtail.ops.shapes import canonical
from swallowtail.wiring import Wiring


def rotate(x: Tensor, wiring: Wiring, angles: Tensor, *, cache: PreparedCache | None = None) -> Tensor:
    """Q x for vectors on the last axis.

    Args:
        x: shape (*batch, n).
        wiring: who meets whom.
        angles: shape (*batch, K) with leading axes that broadcast against those of x, or just (K,).
        cache: where to keep coefficients between calls, as long as the angles do not change.

    Returns:
        Shape (*batch, n). Half-precision x keeps its dtype (arithmetic is float32); otherwise dtypes promote.
    """
    how = route(x, angles)
    if how is KERNEL and cache is not None:
        y = cache.quick("from_basis", x, wiring, angles)
        if y is not None:
            return y
    return _rotate(how, x, wiring, angles, False, cache)


def rotate_transpose(
    x: Tensor, wiring: Wiring, angles: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """Qᵀ x for vectors on the last axis; arguments as in `rotate`."""
    how = route(x, angles)
    if how is KERNEL and cache is not None:
        y = cache.quick("to_basis", x, wiring, angles)
        if y is not None:
            return y
    return _rotate(how, x, wiring, angles, True, cache)


def symmetric_matvec(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """Q D Qᵀ x in one pass; ``eigenvalues`` (*batch, n) is the diagonal of D. Returns shape (*batch, n)."""
    how = route(x, angles, eigenvalues)
    if how is KERNEL and cache is not None:
        y = cache.quick("symmetric", x, wiring, angles, eigenvalues)
        if y is not None:
            return y
    return _with_eigenvalues(how, "symmetric", x, wiring, angles, eigenvalues, cache)


def quadratic_form(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """xᵀ Q D Qᵀ x, one number per vector, with about half the multiply-adds of the product. Returns shape (*batch,)."""
    how = route(x, angles, eigenvalues)
    if how is KERNEL and cache is not None:
        y = cache.quick("quadratic", x, wiring, angles, eigenvalues)
        if y is not None:
            return y
    return _with_eigenvalues(how, "quadratic", x, wiring, angles, eigenvalues, cache)


def _rotate(
    how: Route, x: Tensor, wiring: Wiring, angles: Tensor, transpose: bool, cache: PreparedCache | None
) -> Tensor:
    if how is EAGER and is_one_rotation(x, angles, wiring):
        return OneRotation.apply(x, angles, wiring, transpose, cache)
    x3, (angles2,), shape = canonical(x, wiring, angles)
    if how is KERNEL:
        name = kernels.select_backend(x)
        prepared = cache and cache.get(name, wiring, angles2, None, (angles,))
        y = kernels.load(name).rotate(wiring, angles2, x3, transpose, prepared=prepared)
    else:
        y = autograd.apply(how, "rotate", x3, angles2, wiring, transpose)
    return y.reshape(*shape, wiring.n)


def _with_eigenvalues(
    how: Route,
    form: str,
    x: Tensor,
    wiring: Wiring,
    angles: Tensor,
    eigenvalues: Tensor,
    cache: PreparedCache | None,
) -> Tensor:
    """``form`` is "symmetric" or "quadratic", the name of the back end's function."""
    x3, (angles2, d2), shape = canonical(x, wiring, angles, eigenvalues)
    if how is KERNEL:
        name = kernels.select_backend(x)
        prepared = cache and cache.get(name, wiring, angles2, d2, (angles, eigenvalues))
        result = getattr(kernels.load(name), form)(wiring, angles2, d2, x3, prepared=prepared)
    else:
        result = autograd.apply(how, form, x3, angles2, d2, wiring)
    return result.reshape(*shape, wiring.n) if form == "symmetric" else result.reshape(shape)
