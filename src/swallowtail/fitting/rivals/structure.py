"""Structure of H that suggests a form which is not tried here: it is named."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-6  # relative difference of entries that are equal in structure
SPARSE = 0.1  # share of entries that are not zero, below which H is sparse
LARGEST = 2048


def suggestions(H: np.ndarray, name: str = "H") -> list[str]:
    """Sentences about forms that are exact, or nearly so, for matrices like H, which has this ``name``."""
    n = len(H)
    if not 4 <= n <= LARGEST:
        return []
    found, scale = [], float(np.abs(H).max(initial=0.0))
    if scale == 0.0 or np.count_nonzero(H - np.diag(np.diagonal(H))) == 0:
        return []
    block = _toeplitz_block(H, ROUNDING * scale)
    if block == n:
        found.append(f"{name} is Toeplitz: products by FFT are exact.")
    elif block:
        found.append(
            f"{name} is block Toeplitz with blocks of {block}, as a kernel on a grid is: products by FFT are exact."
        )
    share = np.count_nonzero(H) / n**2
    if share < SPARSE:
        found.append(f"{name} is sparse, as of a graph: {100 * share:.2g} % of its entries are not zero.")
    return found


def _toeplitz_block(H: np.ndarray, tolerance: float) -> int:
    """n if H is constant along diagonals; m if its m × m blocks are, and repeat along block diagonals; 0 if neither."""
    n = len(H)
    if _shifts(H, 1, 1, tolerance):
        return n
    for m in range(2, n // 2 + 1):
        if n % m == 0 and _shifts(H, m, m, tolerance):
            blocks = H.reshape(n // m, m, n // m, m)
            if np.abs(blocks[:, 1:, :, 1:] - blocks[:, :-1, :, :-1]).max() <= tolerance:
                return m
    return 0


def _shifts(H: np.ndarray, down: int, right: int, tolerance: float) -> bool:
    """Whether H does not change when moved along its diagonal; one row is looked at before the rest."""
    if np.abs(H[-1, right:] - H[-1 - down, :-right]).max() > tolerance:
        return False
    return bool(np.abs(H[down:, right:] - H[:-down, :-right]).max() <= tolerance)
