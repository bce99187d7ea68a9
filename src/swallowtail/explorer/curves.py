"""The angle of the plain rivals at every budget, cheap enough to draw as curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from swallowtail.fitting.budget import UNITS, Cost, Prices
from swallowtail.fitting.methods.low_rank import cut, diagonal_low_rank
from swallowtail.fitting.rivals.sparse import by_size, entries_cost, only_entries
from swallowtail.fitting.timing import time_model
from swallowtail.metrics import column_angles

N_PROBES = 200
N_POINTS = 24  # of the curve of c·I + low rank
FEW_POINTS = 7  # of the curves that take more work per point
SMALL = 256  # n up to which a diagonal + low rank is fitted for several ranks


def rival_curves(H: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> list[dict[str, Any]]:
    """Curves of c·I + low rank, diagonal + low rank and the largest entries of H, costed as in every fit's verdict.

    Args:
        H: shape (n, n).
        values, vectors: its eigendecomposition, ascending.

    Returns:
        One record per rival: its name, and points with an amount per unit and the angle.
    """
    X = np.random.default_rng(1).standard_normal((len(H), N_PROBES))
    prices = Prices(len(H), time_model())
    return [
        {"name": "c·I + low rank", "points": _low_rank(values, vectors.T @ X, prices)},
        {"name": "diagonal + low rank", "points": _diagonal_low_rank(H, X, prices)},
        {"name": "largest entries", "points": _largest_entries(H, X, prices)},
    ]


def amounts(cost: Cost) -> dict[str, float]:
    """What something costs in each unit that is known; time in microseconds."""
    known = {unit: cost.of(unit) for unit in UNITS if np.isfinite(cost.of(unit))}
    return {unit: round(1e6 * amount, 3) if unit == "time" else amount for unit, amount in known.items()}


def _low_rank(values: np.ndarray, Z: np.ndarray, prices: Prices) -> list[dict[str, Any]]:
    """In the eigenbasis, where H is diagonal; Z (n, k) are the probes there. Angles do not depend on the basis."""
    n = len(values)
    ranks = _spread(n // 2, N_POINTS)
    return [_point(prices.multiple(r), values[:, None] * Z, cut(values, np.eye(n), r) @ Z) for r in ranks]


def _diagonal_low_rank(H: np.ndarray, X: np.ndarray, prices: Prices) -> list[dict[str, Any]]:
    ranks = _spread(len(H) // 3, FEW_POINTS) if len(H) <= SMALL else [0]
    return [_point(prices.rotations(0, r), H @ X, diagonal_low_rank(H, r) @ X) for r in ranks]


def _largest_entries(H: np.ndarray, X: np.ndarray, prices: Prices) -> list[dict[str, Any]]:
    """Entries are kept together with their mirror images; one triangle is stored."""
    n, order, points = len(H), by_size(H), []
    counts = np.geomspace(min(n, len(order)), len(order) * 0.6, FEW_POINTS).astype(int)
    for kept in np.unique(counts).tolist():
        form = only_entries(H, order[:kept])
        cost = entries_cost(n, kept, form.nnz, prices.model)
        points.append(_point(cost, H @ X, form.toarray() @ X))
    return points


def _spread(most: int, count: int) -> list[int]:
    """Whole numbers from 0 to ``most``, dense where they are small."""
    return sorted({0, 1, *np.geomspace(1, max(1, most), count).astype(int).tolist()})


def _point(cost: Cost, A: np.ndarray, B: np.ndarray) -> dict[str, Any]:
    return {**amounts(cost), "angle": round(float(column_angles(A, B).mean()), 3)}
