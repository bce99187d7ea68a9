"""Functions of H as targets: f(H) of a matrix, products with a sparse inverse, and H in the basis fitted to f(H)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.properties import ApplyColumns, dense_inverse
from swallowtail.operators import HybridOperator, SymmetricOperator

LARGEST_BAND = 2**25  # numbers in the band of a sparse matrix up to which it is factorised: 256 MiB
NEARLY_SINGULAR = 30  # power iterations for the norm of a sparse inverse


class SpectralFunction(ABC):
    """f with f(H) = V f(D) Vᵀ for H = V D Vᵀ. Abstract: `Inverse`, `UserFunction`."""

    name: str  # of f(H) in messages

    @abstractmethod
    def __call__(self, d: np.ndarray) -> np.ndarray:
        """f of eigenvalues (k,), checked."""

    @abstractmethod
    def of_matrix(self, H: np.ndarray, report: Callable[[int], None]) -> np.ndarray:  # shape: (n, n)
        """f(H); ``report`` is called with the number of columns that are done."""


class Inverse(SpectralFunction):
    """1/d. From products H has to be positive definite: else Ritz values between its eigenvalues may be zero."""

    name = "H⁻¹"

    def __call__(self, d: np.ndarray) -> np.ndarray:
        least, largest = float(d.min()), float(np.abs(d).max())
        if not least > len(d) * np.finfo(np.float64).eps * largest:
            raise ArgumentError(
                "H",
                "a positive definite H for target='inverse' from products",
                f"a Ritz value of {least:.3g}, the largest being {largest:.3g}",
                "try the entries of H, which may have negative eigenvalues, or products with H + epsilon·I",
            )
        return 1.0 / d

    def of_matrix(self, H: np.ndarray, report: Callable[[int], None]) -> np.ndarray:
        return dense_inverse(H, report)


class UserFunction(SpectralFunction):
    """A function of the caller, from a tensor of eigenvalues to as many numbers."""

    name = "f(H)"

    def __init__(self, f: Callable[[torch.Tensor], Any]) -> None:
        self._f = f

    def __call__(self, d: np.ndarray) -> np.ndarray:
        found = checks.as_tensor("target", self._f(torch.from_numpy(d.copy()))).detach()
        hint = "try lambda d: torch.exp(-d)"
        if found.shape != d.shape:
            expected = f"a function from {len(d)} eigenvalues to as many numbers"
            raise ArgumentError("target", expected, f"one to shape {tuple(found.shape)}", hint)
        values: np.ndarray = found.to("cpu", torch.float64).numpy()
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ArgumentError(
                "target",
                "a function with finite values at the eigenvalues of H",
                f"{values[bad[0]]} at {d[bad[0]]:.3g}",
                "try it with d.clamp(min=0), where negative eigenvalues are rounding, or fit H + epsilon·I",
            )
        return values

    def of_matrix(self, H: np.ndarray, report: Callable[[int], None]) -> np.ndarray:
        d, V = np.linalg.eigh(H)
        A = (V * self(d)) @ V.T
        report(len(H))
        return 0.5 * (A + A.T)


def spectral_function(target: Any) -> SpectralFunction | None:
    """What a fit's target makes close, if it is not the matrix itself."""
    if callable(target):
        return UserFunction(target)
    return Inverse() if target == "inverse" else None


def sparse_solver(H: Any) -> ApplyColumns | None:
    """X ↦ H⁻¹X for a sparse H, by a factorisation; None if that could take much more memory than H.

    In an order of the coordinates that makes its band narrow, no factor has entries outside it.

    Raises:
        ArgumentError: H is singular.
    """
    n = H.shape[0]
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(H.tocsr(), symmetric_mode=True)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    rows, columns = H.nonzero()
    band = int(np.abs(place[rows] - place[columns]).max(initial=0))
    if n * (2 * band + 1) > LARGEST_BAND:
        return None
    try:
        factors = scipy.sparse.linalg.splu(H.tocsc()[order][:, order])
    except RuntimeError as error:  # SuperLU met a column of zeros
        raise _singular("a singular sparse matrix") from error

    def solve(X: np.ndarray) -> np.ndarray:
        Y = np.empty_like(X)
        Y[order] = factors.solve(np.ascontiguousarray(X[order]))
        return Y

    x, most = np.random.default_rng(0).standard_normal((n, 1)), 0.0
    for _ in range(NEARLY_SINGULAR):
        x = solve(x / np.linalg.norm(x))
        most = float(np.linalg.norm(x))
    largest = float(abs(H).sum(axis=1).max())  # no eigenvalue is larger
    if not most * largest * np.finfo(np.float64).eps * n < 1.0:
        raise _singular(f"eigenvalues between {1.0 / most:.3g} and {largest:.3g} in magnitude")
    return solve


def _singular(got: str) -> ArgumentError:
    expected = "an invertible matrix for target='inverse'"
    return ArgumentError("H", expected, got, "try fitting H + epsilon·I")


def in_the_basis_of(operator: Any, H: np.ndarray | Factor) -> Any:
    """H in the basis fitted to f(H): the operator's rotation and rank-one terms with the best numbers for H.

    Without terms these are Rayleigh quotients, dᵢ = qᵢᵀHqᵢ. With terms u_a, ‖H − Q diag(d) Qᵀ − U diag(w) Uᵀ‖_F is
    least for d = h − P w and (G − PᵀP) w = g − Pᵀh, with h = diag(QᵀHQ), g = diag(UᵀHU), and P = (QᵀU)² and
    G = (UᵀU)² entry by entry.
    """
    symmetric = getattr(operator, "symmetric", operator)
    Q = symmetric.rotation
    if isinstance(H, Factor):
        h = H.shift + np.asarray(Q.T @ H.basis) ** 2 @ H.weights
    else:
        h = np.diagonal(Q.T @ np.ascontiguousarray((Q.T @ H).T)).copy()
    if symmetric is operator:
        return SymmetricOperator(Q, torch.from_numpy(h))
    U = operator.basis.numpy()
    P, G, g = np.asarray(Q.T @ U) ** 2, (U.T @ U) ** 2, np.einsum("na,na->a", U, H @ U)
    w = np.linalg.lstsq(G - P.T @ P, g - P.T @ h, rcond=1e-10)[0]
    d = SymmetricOperator(Q, torch.from_numpy(h - P @ w))
    return HybridOperator(d, operator.basis, torch.from_numpy(w))
