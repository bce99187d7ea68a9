"""Closed-form bases: one pass of Jacobi rotations over a fixed wiring, from samples instead of a matrix."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from swallowtail.kernels import select_backend
from swallowtail.wiring import Butterfly, Wiring

ROUNDING = 16  # multiples of the machine epsilon, relative to all samples, below which a coordinate is noise


def jacobi_pass(samples: Tensor, wiring: Wiring, n_fit: int | None = None) -> tuple[Tensor, Tensor]:
    """Angles of a Q for which the coordinates of Qᵀz are uncorrelated pair by pair, layer after layer.

    Layer after layer, each pair (i, j) is turned by the angle that makes its 2×2 second moment diagonal with
    the larger one first,

        θ = ½ atan2(2 Σ zᵢzⱼ, Σ zᵢ² − Σ zⱼ²),

    which is closed form: no learning rate, no iteration, and no n×n matrix. Putting the larger one first
    makes a butterfly gather energy: samples of rank one end in a single coordinate, exactly.

    Args:
        samples: shape (*batch, n, r), r vectors as columns.
        wiring: who meets whom, for all of the batch.
        n_fit: only the first so many columns decide the angles; the others are turned along. None: all.

    Returns:
        Angles (*batch, K), and the samples in the new basis, Qᵀz, (*batch, n, r).
    """
    if (
        isinstance(wiring, Butterfly)
        and not wiring.reverse
        and n_fit is None
        and samples.ndim == 3
        and samples.dtype == torch.float32
        and select_backend(samples) == "gpu"
    ):
        from swallowtail.optim.adam.gpu import launch as _gpu  # it needs Triton

        return _gpu.jacobi_pass(samples, wiring)
    z = samples.clone()
    fit = slice(None) if n_fit is None else slice(n_fit)
    # Samples of low rank leave coordinates that hold only rounding errors. An angle taken from those would be random.
    noise = (ROUNDING * torch.finfo(z.dtype).eps) ** 2 * z[..., fit].square().sum((-2, -1))[..., None]
    angles = [z.new_zeros(*z.shape[:-2], 0)]
    for i, j in _index_pairs(wiring, z.device):
        a, b = z.index_select(-2, i), z.index_select(-2, j)  # shape: (*batch, m, r)
        u, v = a[..., fit], b[..., fit]
        uu, vv = (u * u).sum(-1), (v * v).sum(-1)
        theta = 0.5 * torch.atan2(2 * (u * v).sum(-1), uu - vv)
        theta = torch.where(uu + vv > noise, theta, 0.0)
        c, s = theta.cos()[..., None], theta.sin()[..., None]
        z.index_copy_(-2, i, c * a + s * b)
        z.index_copy_(-2, j, c * b - s * a)
        angles.append(theta)
    return torch.cat(angles, -1), z


def jacobi_pass_matrix(moments: Tensor, wiring: Wiring) -> Tensor:
    """The same angles from second moments A = Σ z zᵀ themselves, (*batch, n, n): (*batch, K)."""
    A = moments.clone()
    angles = [A.new_zeros(*A.shape[:-2], 0)]
    for i, j in _index_pairs(wiring, A.device):
        theta = 0.5 * torch.atan2(2 * A[..., i, j], A[..., i, i] - A[..., j, j])
        for axis, trailing in ((-2, (..., None)), (-1, (..., None, slice(None)))):  # A ← GᵀA, then A ← AG
            c, s = theta.cos()[trailing], theta.sin()[trailing]
            a, b = A.index_select(axis, i), A.index_select(axis, j)
            A.index_copy_(axis, i, c * a + s * b)
            A.index_copy_(axis, j, c * b - s * a)
        angles.append(theta)
    return torch.cat(angles, -1)


@cache  # recorded launches go on reading it
def _index_pairs(wiring: Wiring, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    pairs = [torch.from_numpy(layer).to(device) for layer in wiring.layers()]
    return [(layer[:, 0].contiguous(), layer[:, 1].contiguous()) for layer in pairs]
