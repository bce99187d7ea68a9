"""From the user's shapes and dtypes to the kernels' own, and the checks on the way."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring import Wiring


def canonical(
    x: Tensor, wiring: Wiring, angles: Tensor, *diagonals: Tensor
) -> tuple[Tensor, list[Tensor], torch.Size]:
    """Check, promote and reshape to x (B, m, n), angles (B, K), eigenvalues (B, n); also the batch shape."""
    for name, tensor in zip(("x", "angles", "eigenvalues"), (x, angles, *diagonals), strict=False):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(name, "a torch tensor", type(tensor).__name__, "try torch.as_tensor(...)")
        if tensor.layout is not torch.strided:
            checks.strided(name, tensor)
        checks.real_dtype(name, tensor.dtype)
        size, what = (wiring.n_rotations, "the wiring's K") if name == "angles" else (wiring.n, "n")
        checks.last_axis(name, tensor, size, what)
        if tensor.device != x.device:
            checks.same_device(x=x, **{name: tensor})
    dtype = torch.float32 if x.dtype in checks.HALF else x.dtype
    for tensor in (angles, *diagonals):
        if x.dtype not in checks.HALF:
            dtype = torch.promote_types(dtype, tensor.dtype)
    if angles.dtype is torch.float64 and dtype is torch.float32:
        # A large angle has few digits left in float32: at 1e8 neighbours are a whole turn apart.
        angles = torch.atan2(torch.sin(angles), torch.cos(angles))
    # Lazily negated views are made real: kernels read the memory as it is.
    parameters = [t.to(dtype).resolve_neg() for t in (angles, *diagonals)]
    x = (x if x.dtype in checks.HALF else x.to(dtype)).resolve_neg()

    single = all(t.ndim == 1 for t in parameters)  # the usual case, and broadcast_shapes is slow
    batch = torch.Size() if single else torch.broadcast_shapes(*(t.shape[:-1] for t in parameters))
    if math.prod(batch) == 1 and len(batch) < x.ndim:
        return (
            x.reshape(1, math.prod(x.shape[:-1]), wiring.n),
            [t.reshape(1, t.shape[-1]) for t in parameters],
            x.shape[:-1],
        )
    shape = torch.broadcast_shapes(batch, x.shape[:-1])
    batch = (1,) * (len(shape) - len(batch)) + tuple(batch)
    # Leading axes along which the parameters differ make up B; the axes behind them are vectors, m.
    n_own = max((i + 1 for i, size in enumerate(batch) if size != 1), default=0)
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
