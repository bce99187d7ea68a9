"""Closed-form bases: one pass of Jacobi rotations over a fixed wiring.

Layer after layer, each pair (i, j) is turned by the angle that makes its 2×2 second moment diagonal, the larger first:

    θ = ½ atan2(2 Σ zᵢzⱼ, Σ zᵢ² − Σ zⱼ²).

There is no learning rate and no iteration. `angles_from_samples` needs no n×n matrix; `angles_from_moments` starts
from one. Putting the larger moment first makes a butterfly gather energy: samples of rank one end in a single
coordinate, exactly. `adam/gpu` has the first of the two as a GPU kernel.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from swallowtail.wiring import Wiring

# Samples of low rank leave coordinates that hold only rounding errors. An angle taken from those would be random, so
# such a pair is not turned. This many machine epsilons count as rounding.
ROUNDING = 16


def noise_in_samples(samples: Tensor) -> Tensor:  # shape: (*batch,)
    """Up to which Σ zᵢ² + Σ zⱼ² a pair holds only rounding errors; samples (*batch, n, r)."""
    return (ROUNDING * torch.finfo(samples.dtype).eps) ** 2 * samples.square().sum((-2, -1))


def noise_in_moments(diagonal: Tensor) -> Tensor:  # shape: (*batch,)
    """Up to which Aᵢᵢ + Aⱼⱼ a pair holds only rounding errors; the diagonal of A (*batch, n) as it is now.

    Moments are squares, so they lose twice as many digits as samples: here the epsilon itself counts, not its square.
    Their errors come from the largest entries. The trace would be too strict, since on a wide side it is n times the
    mean.
    """
    return ROUNDING * torch.finfo(diagonal.dtype).eps * diagonal.amax(-1)


def angles_from_samples(samples: Tensor, wiring: Wiring, n_fit: int | None = None) -> tuple[Tensor, Tensor]:
    """Angles of a Q for which the coordinates of Qᵀz are uncorrelated pair by pair, from samples z.

    Args:
        samples: shape (*batch, n, r), r vectors as columns.
        wiring: who meets whom, for all of the batch.
        n_fit: only this many leading columns decide the angles; the others are rotated with them. None: all.

    Returns:
        Angles (*batch, K), and the samples in the new basis, Qᵀz, (*batch, n, r).
    """
    z = samples.clone()
    fit = slice(None) if n_fit is None else slice(n_fit)
    noise = noise_in_samples(z[..., fit])[..., None]
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


def angles_from_moments(moments: Tensor, wiring: Wiring) -> Tensor:  # shape: (*batch, K)
    """The same angles from the second moments A = Σ z zᵀ themselves, (*batch, n, n).

    Coordinates with less energy than `noise_in_moments` keep their place; samples would still tell them from noise.
    """
    A = moments.clone()
    angles = [A.new_zeros(*A.shape[:-2], 0)]
    for i, j in _index_pairs(wiring, A.device):
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        a, b = diagonal[..., i], diagonal[..., j]
        theta = 0.5 * torch.atan2(2 * A[..., i, j], a - b)
        theta = torch.where(a + b > noise_in_moments(diagonal)[..., None], theta, 0.0)
        for axis, trailing in ((-2, (..., None)), (-1, (..., None, slice(None)))):  # A ← GᵀA, then A ← AG
            c, s = theta.cos()[trailing], theta.sin()[trailing]
            a, b = A.index_select(axis, i), A.index_select(axis, j)
            A.index_copy_(axis, i, c * a + s * b)
            A.index_copy_(axis, j, c * b - s * a)
        angles.append(theta)
    return torch.cat(angles, -1)


@cache  # on a GPU a recorded step goes on reading these tensors
def _index_pairs(wiring: Wiring, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    pairs = [torch.from_numpy(layer).to(device) for layer in wiring.layers()]
    return [(layer[:, 0].contiguous(), layer[:, 1].contiguous()) for layer in pairs]
