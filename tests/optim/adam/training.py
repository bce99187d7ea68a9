"""Parameters trained by GivensAdam on random gradients."""

from __future__ import annotations

import torch


def trained(optimizer_of, shapes, steps=15, dtype=torch.float64, seed=0):
    """Parameters after some steps on random gradients."""
    generator = torch.Generator().manual_seed(seed)
    params = [
        torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes
    ]
    optimizer = optimizer_of(params)
    for _ in range(steps):
        for p in params:
            p.grad = (
                torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) + 0.1 * p.detach()
            )
        optimizer.step()
    return params, optimizer
