"""How many rotations a fit may use."""

from __future__ import annotations


def default_budget(n: int, depth: int = 1) -> int:
    """K = n⌈lg n⌉/2 · depth, the paper's."""
    return (n * (n - 1).bit_length() + 1) // 2 * depth
