"""Samples of low rank: what a Jacobi pass leaves in most coordinates is rounding noise."""

from __future__ import annotations

import torch

N_SAMPLES = 6
KINDS = ("rank one", "one half", "two of rank one", "equal coordinates")


def low_rank_samples(kind: str, n: int) -> torch.Tensor:  # shape: (n, N_SAMPLES), float64
    generator = torch.Generator().manual_seed(n)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    z = draw(n, 1) @ draw(1, N_SAMPLES)
    if kind == "one half":
        z[n // 2 :] = 0
    elif kind == "two of rank one":
        z[::2] = draw(len(z[::2]), 1) @ draw(1, N_SAMPLES)
    elif kind == "equal coordinates":
        z = draw(1, N_SAMPLES).repeat(n, 1)
    return z


def check_same_rotations(angles: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for half turns, which only change signs. An angle from noise would be far off."""
    assert float((angles.double() - expected.double()).sin().abs().max()) < 1e-5
