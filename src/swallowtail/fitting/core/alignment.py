"""What a fit of a rotation minimises."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.objectives import EXACT, Smooth
from swallowtail.fitting.core.product import ROTATION, rotate_rows, tile
from swallowtail.fitting.core.searchable import Report, inserted, place
from swallowtail.fitting.core.trace import grow_aligned, trace_parts


class Alignment(Smooth):
    """‖R − Q‖²_F / n = 2 − 2 tr(QᵀR)/n, the squared relative error for orthogonal R (n, n)."""

    # At n = 256 eigenvectors of a kernel are left with a fifth less error.
    starts: tuple[str, ...] = ("layers",)

    def __init__(self, R: np.ndarray) -> None:
        self.R = np.ascontiguousarray(R, dtype=np.float64)
        self.n, self.target = len(self.R), ROTATION
        self.tiles = tile(self.R)
        self.floor, self.unit, self.constant, self.rounding = 0.0, float(self.n), 2.0, EXACT

    def residual(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        M = self.R.copy()
        rotate_rows(M, pairs, np.cos(angles), np.sin(angles), True)
        return M

    def of_residual(self, A: np.ndarray) -> float:
        return 2.0 - 2.0 * float(np.trace(A)) / self.unit

    def grow(
        self, A: np.ndarray, count: int, threshold: float, enough: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        return grow_aligned(A, count, threshold, EXACT, enough)

    def regrow(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        at = place(len(pairs), generator)  # at n = 64 anywhere is worth 2.5° against the end alone
        return inserted(pairs, angles, at, *self._grown_at(at, pairs, angles, count, threshold))

    def begin(self, A: np.ndarray, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        return self.grow(A, count, 0.0, enough)

    def in_front(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        report()
        return self._grown_at(0, pairs, angles, count, threshold)

    def behind(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._grown_at(len(pairs), pairs, angles, count, threshold)

    def _grown_at(
        self, at: int, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        # With Q = A·B and C = AᵀRBᵀ, tr(QᵀR) = tr C: rotations chosen on C may stand between A and B.
        C = np.ascontiguousarray(self.residual(pairs[:at], angles[:at]).T)
        rotate_rows(C, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
        return self.grow(np.ascontiguousarray(C.T), count, threshold)

    def removal_losses(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        # Without a rotation: turned by −θ more.
        _, w, p = trace_parts(self.tiles, pairs, angles)
        return (p * (1.0 - np.cos(angles)) + w * np.sin(angles)) * (2.0 / self.unit)
