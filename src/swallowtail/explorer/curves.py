"""The angle of the plain rivals at every budget, cheap enough to draw as curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from swallowtail.metrics import column_angles

N_PROBES = 200
N_POINTS = 24  # per curve
MOST_ENTRIES = 12  # points of the curve that multiplies by sparse matrices


def rival_curves(H: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> list[dict[str, Any]]:
    """Curves of c·I + low rank, of the diagonal alone and of the largest entries of H.

    Args:
        H: shape (n, n).
        values, vectors: its eigendecomposition.

    Returns:
        One record per rival: its name, and points with floats, bytes, multiply_adds and angle.
    """
    n = len(H)
    X = np.random.default_rng(1).standard_normal((n, N_PROBES))
    HX = H @ X
    return [
        {"name": "c·I + low rank", "points": _low_rank(values, vectors.T @ X)},
        {"name": "largest entries", "points": _largest_entries(H, X, HX)},
        {"name": "diagonal", "points": [_point(n, 4 * n, n, HX, np.diagonal(H)[:, None] * X)]},
    ]


def _low_rank(values: np.ndarray, Z: np.ndarray) -> list[dict[str, Any]]:
    """In the eigenbasis everything is diagonal; Z (n, k) are the probes there. Angles do not depend on the basis."""
    n = len(values)
    points = []
    for r in _spread(n // 2):
        kept = _approximation(values, r)
        points.append(
            _point(
                r * (n + 1) + 1,
                4 * (r * (n + 1) + 1),
                (2 * r + 1) * n,
                values[:, None] * Z,
                kept[:, None] * Z,
            )
        )
    return points


def _approximation(values: np.ndarray, r: int) -> np.ndarray:
    """Eigenvalues with all but r extreme ones replaced by their mean; values ascend."""
    n, best, found = len(values), np.inf, values
    for low in range(r + 1):
        rest = slice(low, n - (r - low))
        spread = float(((values[rest] - values[rest].mean()) ** 2).sum()) if r < n else 0.0
        if spread < best:
            best, found = spread, values.copy()
            found[rest] = values[rest].mean()
    return found


def _largest_entries(H: np.ndarray, X: np.ndarray, HX: np.ndarray) -> list[dict[str, Any]]:
    n = len(H)
    order = np.argsort(-np.abs(H), axis=None, kind="stable")
    points = []
    for share in np.unique(np.geomspace(n, n * n / 2, MOST_ENTRIES).astype(int)):
        sparse = np.zeros(n * n)
        sparse[order[:share]] = H.ravel()[order[:share]]
        # A value and its column, four bytes each, and where rows begin.
        points.append(
            _point(int(share), 8 * int(share) + 4 * (n + 1), int(share), HX, sparse.reshape(n, n) @ X)
        )
    return points


def _spread(most: int) -> list[int]:
    """Whole numbers from 0 to ``most``, dense where they are small."""
    return sorted({0, 1, *np.geomspace(1, max(1, most), N_POINTS).astype(int).tolist()})


def _point(floats: int, n_bytes: int, multiply_adds: int, A: np.ndarray, B: np.ndarray) -> dict[str, Any]:
    angle = float(column_angles(A, B).mean())
    return {"floats": floats, "bytes": n_bytes, "multiply_adds": multiply_adds, "angle": round(angle, 3)}
