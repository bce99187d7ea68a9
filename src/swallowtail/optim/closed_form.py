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
# a pair keeps its place if it holds less than this many machine epsilons of what the largest errors come from.
ROUNDING = 16


def noise_in_samples(samples: Tensor) -> Tensor:  # shape: (*batch,)
    """The energy zᵢ² + zⱼ² up to which a pair of samples (*batch, n, r) is noise: the square of a rounding error."""
    return (ROUNDING * torch.finfo(samples.dtype).eps) ** 2 * samples.square().sum((-2, -1))


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
    """The same angles from the second moments A = Σ z zᵀ themselves, (*batch, n, n)."""
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


@cache  # on a GPU a recorded step goes on reading these tensors
def _index_pairs(wiring: Wiring, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    pairs = [torch.from_numpy(layer).to(device) for layer in wiring.layers()]
    return [(layer[:, 0].contiguous(), layer[:, 1].contiguous()) for layer in pairs]
