"""A bound on outliers: no row may be more than κ times as far as plain shrinkage says.

C = (1 − δ) S + δ, with the δ of OAS, gives every direction some variance. A blend may give a direction far less. Then a
pixel that was dark in all rows and is bright in the next makes a huge distance. The bound is Σ ⪰ C / κ, so that
xᵀΣ⁻¹x ≤ κ xᵀC⁻¹x for every x. In a basis where C is 1 and Σ⁻¹ is diagonal, it cuts the entries of Σ⁻¹ off at κ.

Held-out rows say what the bound costs on average and what it saves the row that it helps most (`worth_it`). Where
columns differ in their units C describes nothing, and the bound only costs; heavy_tails.py is for those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from swallowtail.gaussians.regularise.weights import FoldModels

BOUND = 3.0  # κ
# Of what the bound saves the row that it helps most, this much may be lost on average. Images pay 0.001 to 0.004 of it,
# tables (breast cancer, in any units) would pay 0.03 or more.
PRICE = 0.01
ROUNDING = 1e-12  # values smaller than this share of the largest are not known: such units are left alone


def worth_it(folds: Sequence[FoldModels], weights: np.ndarray) -> bool:
    """Whether the bound costs held-out rows less than `PRICE` of what it saves one of them, for a blend's weights."""
    cost = saved = 0.0
    for fold in folds:
        P = sum(share * member for share, member in zip(weights, fold.members, strict=True))
        values, basis = _common_basis(P, fold.usual)
        if values[0] <= ROUNDING * values[-1]:
            return False
        cut = np.maximum(values - BOUND, 0.0)
        moments = np.einsum("ij,ij->j", basis, fold.moments @ basis)
        logs = np.log(np.maximum(values / BOUND, 1.0))
        cost += 0.5 * (logs.sum() - cut @ moments) / len(folds)
        saved = max(saved, 0.5 * float(((fold.rows @ basis) ** 2 @ cut).max()))
    return bool(cost < PRICE * saved)


def bounded(P: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """P (n, n) with xᵀPx ≤ κ xᵀC⁻¹x for all x, C = ``usual``."""
    values, basis = _common_basis(P, usual)
    return (basis * np.minimum(values, BOUND)) @ basis.T


def _common_basis(P: np.ndarray, usual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,), rising, and B (n, n) with P = B diag(values) Bᵀ and C⁻¹ = B Bᵀ."""
    L = cholesky(usual, lower=True)
    values, U = np.linalg.eigh(L.T @ P @ L)
    return values, solve_triangular(L, U, lower=True, trans=1)
