"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x, above all back ends.

Vectors lie on the last axis. Calls that need no gradient go straight to the kernel; the others
go through the operators of `_library`, which is what autograd, ``torch.compile`` and ``torch.export`` see.
Backward passes rebuild activations by running the rotation the other way: they store none.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.kernels import PreparedCache, direct, load, select_backend
from swallowtail.ops import autograd as library
from swallowtail.wiring import Wiring

_HALF = (torch.float16, torch.bfloat16)


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
    if cache is not None and (run := cache.bound("up", x, wiring, angles)) is not None:
        return run(x)
    return _rotate(x, wiring, angles, False, cache)


def rotate_transpose(
    x: Tensor, wiring: Wiring, angles: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """Qᵀ x for vectors on the last axis; arguments as in `rotate`."""
    if cache is not None and (run := cache.bound("down", x, wiring, angles)) is not None:
        return run(x)
    return _rotate(x, wiring, angles, True, cache)


def symmetric_matvec(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """Q D Qᵀ x in one pass; ``eigenvalues`` (*batch, n) is the diagonal of D. Returns shape (*batch, n)."""
    if cache is not None and (run := cache.bound("symmetric", x, wiring, angles, eigenvalues)) is not None:
        return run(x)
    x3, (angles2, d2), shape = _canonical(x, wiring, angles, eigenvalues)
    if direct(x, angles, eigenvalues):
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, (angles, eigenvalues), angles2, d2)
        y = load(name).symmetric(wiring, angles2, d2, x3, **prepared)
    else:
        y = library.call("symmetric", x3, angles2, d2, *library.encode(wiring))
    return y.reshape(*shape, wiring.n)


def quadratic_form(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """xᵀ Q D Qᵀ x, one number a vector, at about half the cost of the product. Returns shape (*batch,)."""
    if cache is not None and (run := cache.bound("quadratic", x, wiring, angles, eigenvalues)) is not None:
        return run(x)
    x3, (angles2, d2), shape = _canonical(x, wiring, angles, eigenvalues)
    if direct(x, angles, eigenvalues):
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, (angles, eigenvalues), angles2, d2)
        q = load(name).quadratic(wiring, angles2, d2, x3, **prepared)
    else:
        q = library.call("quadratic", x3, angles2, d2, *library.encode(wiring))
    return q.reshape(shape)


def _rotate(
    x: Tensor, wiring: Wiring, angles: Tensor, transpose: bool, cache: PreparedCache | None
) -> Tensor:
    unwatched = direct(x, angles)
    if not unwatched and (simple := library.rotate_simply(x, angles, wiring, transpose, cache)) is not None:
        return simple
    x3, (angles2,), shape = _canonical(x, wiring, angles)
    if unwatched:
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, (angles,), angles2, None)
        y = load(name).rotate(wiring, angles2, x3, transpose, **prepared)
    else:
        y = library.call("rotate", x3, angles2, *library.encode(wiring), transpose)
    return y.reshape(*shape, wiring.n)


def _prepared(
    cache: PreparedCache | None,
    name: str,
    wiring: Wiring,
    sources: tuple[Tensor, ...],
    angles: Tensor,
    eigenvalues: Tensor | None,
) -> dict[str, Any]:
    if cache is None or name == "reference":
        return {}
    return {"prepared": cache.get(name, wiring, angles, eigenvalues, sources)}


def _canonical(
    x: Tensor, wiring: Wiring, angles: Tensor, *diagonals: Tensor
) -> tuple[Tensor, list[Tensor], torch.Size]:
    """Check, promote and reshape to x (B, m, n), angles (B, K), eigenvalues (B, n); also the batch shape."""
    for name, tensor in zip(("x", "angles", "eigenvalues"), (x, angles, *diagonals), strict=False):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name}: expected a torch tensor, got {type(tensor).__name__}; try torch.as_tensor(...)"
            )
        checks.real_dtype(name, tensor.dtype)
        size, what = (wiring.n_rotations, "the wiring's K") if name == "angles" else (wiring.n, "n")
        checks.last_axis(name, tensor, size, what)
        if tensor.device != x.device:
            checks.same_device(x=x, **{name: tensor})
    dtype = torch.float32 if x.dtype in _HALF else x.dtype
    for tensor in (angles, *diagonals):
        if x.dtype not in _HALF:
            dtype = torch.promote_types(dtype, tensor.dtype)
    parameters = [t.to(dtype) for t in (angles, *diagonals)]
    x = x if x.dtype in _HALF else x.to(dtype)

    single = all(t.ndim == 1 for t in parameters)  # the usual case, and broadcast_shapes is slow
    batch = torch.Size() if single else torch.broadcast_shapes(*(t.shape[:-1] for t in parameters))
    if math.prod(batch) == 1 and len(batch) < x.ndim:
        return (
            x.reshape(1, x.shape[:-1].numel(), wiring.n),
            [t.reshape(1, t.shape[-1]) for t in parameters],
            x.shape[:-1],
        )
    shape = torch.broadcast_shapes(batch, x.shape[:-1])
    batch = (1,) * (len(shape) - len(batch)) + tuple(batch)
    n_own = max(
        (i + 1 for i, size in enumerate(batch) if size != 1), default=0
    )  # axes with parameters of their own
    b, m = math.prod(shape[:n_own]), math.prod(shape[n_own:])
    x = x.expand(*shape, wiring.n).reshape(b, m, wiring.n)
    keep = shape[:n_own]
    parameters = [
        _own_axes(t, len(shape), n_own).expand(*keep, t.shape[-1]).reshape(b, t.shape[-1]) for t in parameters
    ]
    return x, parameters, torch.Size(shape)


def _own_axes(parameter: Tensor, n_axes: int, n_own: int) -> Tensor:
    """Drop the broadcast axes behind the first ``n_own`` of ``n_axes`` batch axes."""
    lead = (1,) * (n_axes + 1 - parameter.ndim) + tuple(parameter.shape)
    return parameter.reshape(*lead[:n_own], lead[-1])
