"""What a fit of a rotation can start from, how good it is, and the plain rivals of an orthogonal matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse

from swallowtail import checks
from swallowtail.fitting.inputs import DENSE_SPARSE, Problem, _device, _dtype, _eps, _float64
from swallowtail.fitting.quality import Ask, Candidate
from swallowtail.fitting.result import FitResult, Rival, count_bytes, count_floats
from swallowtail.fitting.rivals import verdict
from swallowtail.metrics import as_product, error_angle, error_angle_interval, relative_error
from swallowtail.operators import SignedRotation

READ_OFF = 1024  # up to this n all of an operator is read off, with n products, unless max_products forbids
PROBES = 1000
EXACT = 1e-6  # relative error below which R is the product


def as_orthogonal(R: Any, n: int | None, max_products: int | None, solve_pairs: bool) -> Problem:
    """See `fit_rotation` for what R may be; with ``solve_pairs``, pairs that determine R become a matrix."""
    if isinstance(R, (tuple, list)) and len(R) == 2 and all(hasattr(part, "shape") for part in R):
        X, Y = (_float64(name, part) for name, part in zip(("X", "Y"), R, strict=True))
        if X.ndim != 2 or X.shape != Y.shape or X.size == 0:
            raise ValueError(f"pairs: expected X and Y of one shape (n, m), got {X.shape} and {Y.shape}")
        dense = procrustes(X, Y) if solve_pairs else None
        problem = Problem(len(X), dense=dense, pairs=(X, Y), dtype=_dtype(R[0]), device=_device(R[0]))
    elif isinstance(R, (torch.Tensor, np.ndarray, list, tuple)) or (
        issparse(R) and R.shape[0] <= DENSE_SPARSE
    ):
        dense = _float64("R", R.toarray() if issparse(R) else R)
        check_orthogonal(dense, _eps(R))
        problem = Problem(len(dense), dense=dense, dtype=_dtype(R), device=_device(R))
    else:
        return _from_products(R, n, max_products)
    if n is not None and n != problem.n:
        raise ValueError(f"n: expected {problem.n}, the size of R, got {n}; leave it out")
    return problem


def check_orthogonal(R: np.ndarray, eps: float) -> None:
    """Check that RᵀR = I within the rounding of numbers with precision ``eps``."""
    if R.ndim != 2 or R.shape[0] != R.shape[1] or R.size == 0:
        raise ValueError(
            f"R: expected a square matrix (n, n) with n ≥ 1, got shape {R.shape}; try one of them"
        )
    n = len(R)
    distance = float(np.linalg.norm(R.T @ R - np.eye(n)))
    # Rounding an orthogonal matrix gives eps·√n; computing it, by a QR factorisation for instance, some more.
    if not distance <= 64 * eps * n**0.5 * max(1.0, n**0.5 / 8):
        raise ValueError(
            f"R: expected an orthogonal matrix, got ‖RᵀR − I‖ = {distance:.3g}; try the nearest one, "
            "U @ Vh of its singular value decomposition"
        )


def procrustes(X: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
    """The orthogonal R that minimises ‖RX − Y‖_F, X and Y (n, m); None if the pairs leave some of it open."""
    U, sizes, Vh = np.linalg.svd(Y @ X.T)
    return U @ Vh if sizes[-1] > 1e-10 * sizes[0] else None


def _from_products(R: Any, n: int | None, max_products: int | None) -> Problem:
    product = as_product("R", R)
    if product.shape is not None and product.shape[0] != product.shape[1]:
        raise ValueError(f"R: expected a square operator, got shape {product.shape}; try one of them")
    if product.shape is None and n is None:
        raise TypeError("n: expected the dimension, since R is a function of columns, got None; try n=…")
    size = checks.integer("n", n if product.shape is None else product.shape[0], at_least=1)
    if n is not None and n != size:
        raise ValueError(f"n: expected {size}, the operator's own size, got {n}; leave it out")
    problem = Problem(size, dtype=_dtype(R), device=_device(R))
    if (max_products is not None and max_products < size) or (max_products is None and size > READ_OFF):
        problem.product = _same_length(product.apply, size, max(1e-6, 64 * _eps(R)))
        return problem
    dense = product.apply(np.eye(size))
    check_orthogonal(dense, max(_eps(R), 1e-12))  # a product may round more than a matrix does
    problem.dense, problem.n_products = dense, size
    return problem


def _same_length(
    product: Callable[[np.ndarray], np.ndarray], n: int, tolerance: float
) -> Callable[[np.ndarray], np.ndarray]:
    """The product, checked to keep the length of its columns: what can be said without all of R."""

    def apply(X: np.ndarray) -> np.ndarray:
        Y = product(X)
        if len(Y) != n:
            raise ValueError(f"R: expected products of length n = {n}, got {len(Y)}; try n={len(Y)}")
        before, after = np.linalg.norm(X, axis=0), np.linalg.norm(Y, axis=0)
        worst = float(np.abs(after - before).max(initial=0.0) / (before.max(initial=0.0) or 1.0))
        if not worst <= tolerance:
            raise ValueError(
                f"R: expected an orthogonal operator, got a product whose length changed by {worst:.3g} of it; "
                "try fit_symmetric for a symmetric one"
            )
        return Y

    return apply


class LowRank:
    """c·I + U Vᵀ with r columns: 2rn + 1 floats, (2r + 1)n multiply-adds."""

    def __init__(self, c: float, U: np.ndarray, V: np.ndarray) -> None:
        self.c, self.U, self.V = c, U, V
        self.shape = (len(U), len(U))

    def __matmul__(self, X: np.ndarray) -> np.ndarray:
        return self.c * X + self.U @ (self.V.T @ X)


def low_rank(R: np.ndarray, ranks: list[int]) -> dict[int, LowRank]:
    """The best c·I + rank r in Frobenius norm for each r.

    For orthogonal R, (R − cI)ᵀ(R − cI) = (1 + c²)I − c(R + Rᵀ): whatever c, the right singular vectors are
    the eigenvectors of (R + Rᵀ)/2. Keeping those of all but n − r extreme eigenvalues μ, the rest is least for
    c = mean μ over it, where its square is (n − r)(1 − c²).
    """
    n = len(R)
    mu, V = np.linalg.eigh((R + R.T) / 2)
    result = {}
    for r in ranks:
        highest, lowest = (float(part.mean()) if r < n else 0.0 for part in (mu[r:], mu[: n - r]))
        c, kept = (highest, V[:, :r]) if abs(highest) >= abs(lowest) else (lowest, V[:, n - r :])
        result[r] = LowRank(c, R @ kept - c * kept, kept)
    return result


def rotation_rivals(R: np.ndarray, operator: Any, seed: int, others: dict[str, Any]) -> list[Rival]:
    """Rivals of ``operator`` as an approximation of R: c·I + low rank, the other forms fitted, dense.

    Args:
        R: shape (n, n).
        operator: the fit, a Rotation or SignedRotation.
        seed: of the probes for the angle.
        others: name → operator, the other forms that were fitted.
    """
    n = len(R)
    ranks = {
        "floats": (count_floats(operator) - 1) // (2 * n),
        "multiply-adds": (operator.multiply_adds - n) // (2 * n),
    }
    ranks = {name: int(np.clip(r, 0, n)) for name, r in ranks.items()}
    forms: list[tuple[str, Any, tuple[int, int, int], str]] = []
    for r, form in low_rank(R, sorted(set(ranks.values()))).items():
        equal = ", ".join(name for name, rank in ranks.items() if rank == r)
        floats = 2 * r * n + 1
        forms.append((f"c·I + rank {r}", form, (floats, 4 * floats, (2 * r + 1) * n), equal))
    for name, other in others.items():
        forms.append((name, other, (count_floats(other), count_bytes(other), other.multiply_adds), ""))
    found = [
        Rival(
            name,
            error_angle(R, form, PROBES, seed),
            relative_error(R, form @ np.eye(n)).mean,
            *cost,
            equal,
        )
        for name, form, cost, equal in forms
    ]
    return [*found, Rival("dense", 0.0, 0.0, n * n, 4 * n * n, n * n, "")]


def measured_rotation(
    problem: Problem, R: np.ndarray, ask: Ask, best: Candidate, others: dict[str, Any]
) -> FitResult:
    """Measure the best candidate against R, and its rivals."""
    operator, n = best.operator, problem.n
    angle = error_angle_interval(R, operator, seed=ask.seed + 1)
    error = relative_error(R, operator.to_dense().numpy()).mean
    rivals = rotation_rivals(R, operator, ask.seed + 1, others)
    status = "exact" if error < EXACT else "converged"
    notes = ["R is this product, within rounding." if error < EXACT else verdict(angle.mean, rivals)]
    if operator.multiply_adds >= n * n:
        notes.append(
            f"The dense matrix costs no more: {n * n} multiply-adds against {operator.multiply_adds}."
        )
    if isinstance(operator, SignedRotation):
        negative = int((operator.signs < 0).sum())
        why = "The determinant is −1" if negative % 2 else "No product of rotations on this wiring is R"
        notes.append(f"{why}: the operator is Q·diag(±1), {negative} of {n} signs negative.")
    if problem.pairs is not None:
        X, Y = problem.pairs
        misfit = np.linalg.norm(R @ X - Y) / (np.linalg.norm(Y) or 1.0)
        notes.append(f"R is the orthogonal matrix nearest to the pairs: relative misfit {misfit:.2g}.")
    if ask.target_angle is not None and angle.mean > ask.target_angle:
        status = "budget"
        notes.append(f"{ask.target_angle}° was not reached; try a larger n_rotations.")
    return FitResult(
        operator=operator.to(problem.device, problem.dtype),
        angle=angle.mean,
        angle_interval=(angle.low, angle.high),
        relative_error=error,
        n_products=problem.n_products,
        seconds=ask.watch.seconds,
        history=best.history,
        status=ask.watch.status or status,
        message=" ".join(notes),
        method=best.method,
        target="rotation",
        rivals=rivals,
    )
