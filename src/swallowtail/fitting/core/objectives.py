"""What a fit minimises, and the polish that minimises it over all angles together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from swallowtail.fitting.core.curvature import derivatives, steps
from swallowtail.fitting.core.groups import Groups, together
from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.lbfgs import MEMORY, lbfgs
from swallowtail.fitting.core.matching import grow_matching, least_weight, sampled
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.product import (
    FLOOR,
    LIKELIHOOD,
    MATRIX,
    ROTATION,
    TARGETS,
    conjugate,
    power_of_two,
    rotate_rows,
    tile,
)
from swallowtail.fitting.core.removal import removal_losses
from swallowtail.fitting.core.searchable import Diagonalised, Report, Searchable

WORK_BETWEEN_REPORTS = 5e7  # multiply-adds, about 10 ms: how long an interruption may wait
EXACT = 1e-15  # a squared relative error that is rounding


class Smooth(Searchable):
    """One whose gradient the compiled functions of this folder find. Abstract: `Objective`, `Alignment`."""

    tiles: np.ndarray  # `tile` of the matrix
    target: int  # MATRIX, LIKELIHOOD or ROTATION
    floor: float  # smallest variance the likelihood sees
    unit: float  # what the compiled sum is divided by
    constant: float  # what it is taken from

    def __call__(self, pairs: np.ndarray, angles: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient, shape (K,)."""
        value, slopes, _ = derivatives(self.tiles, pairs, angles, self.target, self.floor)
        return self.constant - value / self.unit, slopes / -self.unit

    def polish(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        max_iterations: int = 200,
        tolerance: float = 1e-6,
        report: Callable[[np.ndarray, float], None] | None = None,
        scaled: bool = True,
    ) -> tuple[np.ndarray, float]:
        """As `Searchable.polish`.

        Args:
            scaled: scale the steps by the curvature of each angle. That takes a third of the iterations to the nearest
                minimum; from far away, as a kicked butterfly is, it ends in worse ones.
        """
        x = np.array(angles, dtype=np.float64)
        if len(x) == 0:
            return x, self(pairs, x)[0]
        value, slopes, bends = derivatives(self.tiles, pairs, x, self.target, self.floor)
        f, g = self.constant - value / self.unit, slopes / -self.unit
        scale = steps(bends / self.unit) if scaled else np.ones(len(x))
        gain = tolerance * (1.0 if self.target == LIKELIHOOD else abs(f))
        S, Y, rho = np.zeros((MEMORY, len(x))), np.zeros((MEMORY, len(x))), np.zeros(MEMORY)
        count, done, converged = 0, 0, False
        chunk = max(1, int(WORK_BETWEEN_REPORTS / (14 * self.n * len(x))))
        while done < max_iterations and not converged:
            few = min(chunk, max_iterations - done)
            what = (self.target, self.floor, self.unit, True if self.target == ROTATION else None)
            memory = (scale, S, Y, rho, count, few, gain)
            x, f, g, count, converged = lbfgs(self.tiles, pairs, x, f, g, *what, *memory)
            done += few
            if report is not None:
                report(x, f)
        return x, f


class Objective(Diagonalised, Smooth):
    """One target on one symmetric matrix.

    "matrix" is the squared relative error ‖H − QDQᵀ‖²_F / ‖H‖²_F, "likelihood" the mean of log dᵢ; D is
    eliminated in both.

    Args:
        H: symmetric, shape (n, n).
        target: "matrix" or "likelihood".
    """

    # Matchings suit kernels and images (up to 40 % less error), layers graphs and random matrices (up to 5 % less).
    starts: tuple[str, ...] = ("matchings", "layers")

    def __init__(self, H: np.ndarray, target: str = "matrix") -> None:
        H = np.ascontiguousarray(H, dtype=np.float64)
        self.scale = power_of_two(H)
        self.H, self.n, self.target = H / self.scale, len(H), TARGETS[target]
        self.tiles = tile(self.H)
        self.norm2 = float(np.vdot(self.H, self.H)) or 1.0
        self.floor = FLOOR * max(float(np.trace(self.H)) / self.n, 1e-300)
        self.unit = self.norm2 if self.target == MATRIX else float(self.n)
        self.constant, self.rounding = (1.0, EXACT) if self.target == MATRIX else (0.0, -np.inf)
        # A pair below this changes neither target beyond rounding.
        self._least = 1e-32 * (self.norm2 if self.target == MATRIX else 1.0)

    def residual(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        return conjugate(self.H, pairs, angles) if len(pairs) else self.H.copy()

    def of_residual(self, A: np.ndarray) -> float:
        return self.of_diagonal(np.diagonal(A))

    def grow(
        self, A: np.ndarray, count: int, threshold: float, enough: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        return parallel_jacobi(A, count, threshold, self.target, self.floor, self._least, enough)

    def begin(self, A: np.ndarray, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        if start == "layers":
            return parallel_jacobi(A, count, 0.0, self.target, self.floor, self._least, enough)
        rows = sampled(self.n)
        weights = A[rows]
        if self.target != MATRIX:
            deviation = np.sqrt(np.maximum(np.diagonal(A), self.floor))
            with np.errstate(over="ignore"):  # beside a variance of nothing
                weights = weights / deviation[rows, None] / deviation
        with np.errstate(over="ignore"):
            weights = weights**2
        weights[np.arange(len(rows)), rows] = 0.0
        return grow_matching(A, count, self.target, self.floor, max(self._least, least_weight(weights)))

    def newton(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        at: int,
        count: int,
        layers: int,
        threshold: float,
        groups: Groups | None = None,
        report: Report | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        M, B = self.residual(pairs[:at], angles[:at]), np.eye(self.n)
        rotate_rows(B, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
        groups = together(self.n) if groups is None else groups
        return newton_rotations(M, B, count, layers, threshold, self.target, self.floor, groups, report)

    def removal_losses(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        return removal_losses(self.tiles, pairs, angles, self.target, self.floor) / self.unit

    def of_diagonal(self, d: np.ndarray) -> float:
        """The objective when diag(QᵀHQ), in the units of ``self.H``, is d (n,)."""
        if self.target == MATRIX:
            return 1.0 - float(d @ d) / self.norm2
        return float(np.log(np.maximum(d, self.floor)).mean())

    def eigenvalues(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n,)
        """The best D for this Q: diag(QᵀHQ)."""
        return np.diagonal(self.residual(pairs, angles)) * self.scale
