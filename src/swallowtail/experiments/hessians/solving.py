"""Solve (H + λI) x = g by conjugate gradients with a preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.fitting.core.factor import Factor

RESIDUAL = 1e-6  # relative, at which conjugate gradients stop


def preconditioner(A: Any, shift: float, label: str) -> Callable[[np.ndarray], np.ndarray]:
    """r ↦ (A + λI)⁻¹ r with eigenvalues of A below 0 counted as 0."""
    if label == "none":
        return lambda r: r
    if isinstance(A, np.ndarray):
        d = np.maximum(np.diagonal(A), 0.0) + shift
        return lambda r: r / d
    if hasattr(A, "eigenvalues"):
        inverse = A.function(lambda d: 1 / (d.clamp(min=0.0) + shift))
        return lambda r: inverse @ r
    V, w, c = (A.basis, A.weights, A.shift) if isinstance(A, Factor) else (A.V, A.w, A.d)
    base = max(c, 0.0) + shift
    kept = 1 / (np.maximum(c + w, 0.0) + shift) - 1 / base
    return lambda r: r / base + V @ (kept * (V.T @ r))


def conjugate_gradients(
    H: np.ndarray, shift: float, g: np.ndarray, apply: Callable[[np.ndarray], np.ndarray], limit: int = 2000
) -> int:
    """Iterations until ‖(H + λI) x − g‖ ≤ RESIDUAL ‖g‖; ``limit`` if it takes more."""
    x, r = np.zeros_like(g), g.copy()
    z = apply(r)
    p, rho = z.copy(), float(r @ z)
    for count in range(1, limit + 1):
        q = H @ p + shift * p
        step = rho / float(p @ q)
        x, r = x + step * p, r - step * q
        if np.linalg.norm(r) <= RESIDUAL * np.linalg.norm(g):
            return count
        z = apply(r)
        rho, old = float(r @ z), rho
        p = z + rho / old * p
    return limit
