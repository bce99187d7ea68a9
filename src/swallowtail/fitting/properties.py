"""What a matrix must be to be fitted: symmetric for `fit_symmetric`, orthogonal for `fit_rotation`.

A `Property` tells the parser of `inputs` how to check entries, products and samples of such a matrix.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError, warn_user

ROWS_CHECKED = 1024  # of a matrix on a GPU at a time: a difference takes memory
INVERTED = 256  # columns of an inverse between two reports of progress
READ_EIGENVALUES = 1024  # up to this n an error names the eigenvalues themselves, beyond that estimates
POWERS = 30  # iterations for a norm
ApplyColumns = Callable[[np.ndarray], np.ndarray]  # (n, k) → (n, k), float64


class Property(ABC):
    """Abstract: `Symmetric`, `Orthogonal`."""

    letter: str  # of the matrix in messages: "H" or "R"
    without_entries: str  # the method for products that do not determine the matrix

    @abstractmethod
    def matrix(self, dense: np.ndarray, eps: float) -> np.ndarray:
        """The entries (n, n), checked within the rounding of numbers with precision ``eps``."""

    @abstractmethod
    def read_off(self, dense: np.ndarray, eps: float) -> np.ndarray:
        """The entries as n products gave them, checked."""

    @abstractmethod
    def product(self, apply: ApplyColumns, n: int, eps: float) -> ApplyColumns:
        """The product function, with what can be checked of it."""

    @abstractmethod
    def solve(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
        """The matrix that the samples Y = matrix·X determine, or None."""


class Symmetric(Property):
    """H = Hᵀ.

    Args:
        symmetrize: take (H + Hᵀ)/2 of a matrix that is not symmetric, instead of refusing it.
    """

    letter, without_entries = "H", "products"

    def __init__(self, symmetrize: bool = False) -> None:
        self.symmetrize = symmetrize

    def matrix(self, dense: np.ndarray, eps: float) -> np.ndarray:
        square("H", dense.shape)
        difference, largest = float(np.abs(dense - dense.T).max()), float(np.abs(dense).max())
        if difference > 32 * eps * largest * max(1.0, np.sqrt(len(dense)) / 8) and not self.symmetrize:
            self.refuse(difference, f" (largest entry {largest:.3g})")
        return np.ascontiguousarray((dense + dense.T) / 2)

    def on_device(self, H: torch.Tensor) -> torch.Tensor:  # shape: (n, n)
        """The entries, float32 or float64, checked and made symmetric where they lie."""
        eps = torch.finfo(checks.real_dtype("H", checks.as_tensor("H", H).dtype)).eps
        square("H", tuple(H.shape))
        H = H if H.dtype in (torch.float32, torch.float64) else H.float()
        checks.finite("H", H)
        blocks = [slice(k, k + ROWS_CHECKED) for k in range(0, len(H), ROWS_CHECKED)]
        difference = max(float((H[rows] - H[:, rows].T).abs().max()) for rows in blocks)
        largest = max(float(H.max()), -float(H.min()))
        if difference > 32 * eps * largest * max(1.0, len(H) ** 0.5 / 8) and not self.symmetrize:
            self.refuse(difference, f" (largest entry {largest:.3g})")
        return H.contiguous() if difference == 0.0 else (0.5 * (H + H.T)).contiguous()

    def refuse(self, difference: float, more: str = "") -> None:
        """Raise the error for entries ``difference`` apart from their mirror images."""
        raise ArgumentError(
            "H",
            "a symmetric matrix",
            f"entries {difference:.3g} apart from their mirror images{more}",
            "try `symmetrize=True` to fit (H + Hᵀ)/2",
        )

    def read_off(self, dense: np.ndarray, eps: float) -> np.ndarray:
        n = dense.shape[1]
        if dense.shape != (n, n):
            expected = f"products of shape {(n, n)} for columns {(n, n)}"
            raise ArgumentError("H", expected, dense.shape, "try: lambda X: H @ X")
        largest = float(np.abs(dense).max()) or 1.0  # taken out first: squares neither over- nor underflow
        size_of = lambda A: float(np.linalg.norm(A / largest))
        warn_asymmetry(size_of(dense - dense.T) / (2 * (size_of(dense) or 1.0)))
        return (dense + dense.T) / 2

    def product(self, apply: ApplyColumns, n: int, eps: float) -> ApplyColumns:
        return apply

    def solve(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
        return None  # samples of a symmetric matrix are completed, see methods.products


class Orthogonal(Property):
    """RᵀR = I.

    Args:
        solve_samples: turn samples that determine R into R.
    """

    letter, without_entries = "R", "sgd"

    def __init__(self, solve_samples: bool = True) -> None:
        self.solve_samples = solve_samples

    def matrix(self, dense: np.ndarray, eps: float) -> np.ndarray:
        square("R", dense.shape)
        n = len(dense)
        distance = float(np.linalg.norm(dense.T @ dense - np.eye(n)))
        # Rounding an orthogonal matrix gives eps·√n; computing it, by a QR factorisation for instance, some more.
        if not distance <= 64 * eps * n**0.5 * max(1.0, n**0.5 / 8):
            raise ArgumentError(
                "R",
                "an orthogonal matrix",
                f"‖RᵀR − I‖ = {distance:.3g}",
                "try the nearest one, U @ Vh of its singular value decomposition",
            )
        return dense

    def read_off(self, dense: np.ndarray, eps: float) -> np.ndarray:
        return self.matrix(dense, max(eps, 1e-12))  # a product may round more than a matrix does

    def product(self, apply: ApplyColumns, n: int, eps: float) -> ApplyColumns:
        """The product, checked to keep the length of its columns: what can be said without all of R."""
        tolerance = max(1e-6, 64 * eps)

        def checked(X: np.ndarray) -> np.ndarray:
            Y = apply(X)
            if len(Y) != n:
                raise ArgumentError("R", f"products of length n = {n}", len(Y), f"try n={len(Y)}")
            before, after = np.linalg.norm(X, axis=0), np.linalg.norm(Y, axis=0)
            worst = float(np.abs(after - before).max(initial=0.0) / (before.max(initial=0.0) or 1.0))
            if not worst <= tolerance:
                raise ArgumentError(
                    "R",
                    "an orthogonal operator",
                    f"a product whose length changed by {worst:.3g} of it",
                    "try fit_symmetric for a symmetric one",
                )
            return Y

        return checked

    def solve(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
        return procrustes(X, Y) if self.solve_samples else None


def square(name: str, shape: tuple[int, ...]) -> None:
    """Check the shape of one square matrix."""
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        hint = "try one matrix of the batch"
        if len(shape) == 2:
            hint = "if these are rows of data, try their covariance, numpy.cov(X, rowvar=False), or GivensCovariance"
        elif len(shape) < 2:
            hint = f"try numpy.diag({name}) if it is a diagonal"
        raise ArgumentError(name, "a square matrix (n, n) with n ≥ 1", f"shape {shape}", hint)


def procrustes(X: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
    """The orthogonal R that minimises ‖RX − Y‖_F, X and Y (n, m); None if the samples leave some of it open."""
    U, sizes, Vh = np.linalg.svd(Y @ X.T)
    return U @ Vh if sizes[-1] > 1e-10 * sizes[0] else None


def warn_asymmetry(asymmetry: float) -> None:
    """A product function is not known to be symmetric; say by how much it fails to be."""
    if asymmetry > 1e-6:
        hint = "; vectors are expected in columns: try X.T and Y.T if yours are in rows" * (asymmetry > 0.1)
        warn_user(
            f"the products are not those of a symmetric matrix: antisymmetric part {asymmetry:.2g} of the "
            f"whole; the symmetric part is fitted{hint}",
            UserWarning,
        )


def dense_inverse(H: np.ndarray, report: Callable[[int], None] | None = None) -> np.ndarray:  # shape: (n, n)
    """H⁻¹, for the target "inverse".

    Args:
        H: symmetric, shape (n, n).
        report: called with the number of columns that are done, every `INVERTED` of them.
    """
    n = len(H)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of a singular matrix; here it becomes an error below
        factors = scipy.linalg.lu_factor(H)
        inverse = np.empty((n, n))
        for first in range(0, n, INVERTED):
            columns = slice(first, min(n, first + INVERTED))
            inverse[:, columns] = scipy.linalg.lu_solve(
                factors, np.eye(n, columns.stop - first, -first), check_finite=False
            )
            if report is not None:
                report(columns.stop)
    largest, most = _spectral_norm(H), _spectral_norm(inverse)
    if not most * len(H) * np.finfo(np.float64).eps * largest < 1.0:
        if n <= READ_EIGENVALUES:
            sizes = np.abs(np.linalg.eigvalsh(H))
            least, largest = sizes.min(), sizes.max()
        else:
            least = 1.0 / most if np.isfinite(most) else 0.0
        raise ArgumentError(
            "H",
            "an invertible matrix for target='inverse'",
            f"eigenvalues between {least:.3g} and {largest:.3g} in magnitude",
            "try fitting H + epsilon·I",
        )
    return 0.5 * (inverse + inverse.T)


def _spectral_norm(A: np.ndarray) -> float:
    """The largest |eigenvalue| of a symmetric matrix, a few per cent too small at most; NaN if it is not finite."""
    scale = float(np.abs(A).max(initial=0.0))
    if not np.isfinite(scale) or scale == 0.0:
        return float("nan") if scale else 0.0
    A, x, size = A / scale, np.random.default_rng(0).standard_normal(len(A)), 0.0
    for _ in range(POWERS):
        x = A @ (x / np.linalg.norm(x))
        size = float(np.linalg.norm(x))
        if size == 0.0:
            break
    return size * scale
