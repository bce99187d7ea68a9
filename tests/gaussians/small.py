"""Small Gaussians for the tests of this folder."""

import torch
from torch.distributions import MultivariateNormal

from swallowtail import Butterfly, Rotation, SymmetricOperator
from swallowtail.gaussians.normal import GivensNormal


def operator(n=8, seed=0, batch=(), depth=1):
    g = torch.Generator().manual_seed(seed)
    wiring = Butterfly(n, depth)
    angles = torch.randn(*batch, wiring.n_rotations, generator=g, dtype=torch.float64)
    return SymmetricOperator(
        Rotation(wiring, angles), 0.5 + torch.rand(*batch, n, generator=g, dtype=torch.float64)
    )


def normal(n=8, seed=0, batch=(), **kind):
    loc = torch.randn(*batch, n, generator=torch.Generator().manual_seed(seed + 50), dtype=torch.float64)
    return GivensNormal(loc, **{(kind.get("kind") or "covariance"): operator(n, seed, batch)})


def dense(p):
    return MultivariateNormal(p.loc, p.covariance_matrix)
