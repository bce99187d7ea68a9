"""How many rotations a fit may use."""

from __future__ import annotations

MOST_ROUNDS = 16  # of the default budget, when a target angle decides how many rotations there will be
# Jacobi sweeps of n(n − 1)/2 rotations each. Ten diagonalise any matrix to rounding; growth then ends by itself.
MOST_SWEEPS = 64


def default_budget(n: int, depth: int = 1) -> int:
    """K = n⌈lg n⌉/2 · depth, the paper's."""
    return (n * (n - 1).bit_length() + 1) // 2 * depth


def largest_budget(n: int) -> int:
    """More rotations than any matrix (n, n) can use: what is asked for beyond it is not set aside."""
    return MOST_SWEEPS * max(1, n * (n - 1) // 2)
