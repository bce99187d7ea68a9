"""Statistics of an E-step that merge: all that the M-step of a `GivensMixture` needs of any number of rows."""

from __future__ import annotations

import numpy as np

from swallowtail.errors import ArgumentError


class MixtureStatistics:
    """Responsibility-weighted counts, means, and squares along the axes of k Gaussians with fixed rotations.

    Merging is associative and commutative to rounding. Squares are about the means, and merged as Chan, Golub and
    LeVeque do, so a large mean costs no digits. Statistics merge only if they were made with the same rotations.

    Args:
        counts: Σ r, shape (k,).
        means: Σ r x / Σ r, shape (k, n).
        rotated: Q_kᵀ means, shape (k, n).
        squares: Σ r (z − rotated)², z = Q_kᵀx, shape (k, n).
        log_density: Σ log p(x).
        n_rows: how many rows.
        scatters: Σ r (x − mean)(x − mean)ᵀ, shape (k, n, n), where rotations are to be chosen again.
    """

    def __init__(
        self,
        counts: np.ndarray,
        means: np.ndarray,
        rotated: np.ndarray,
        squares: np.ndarray,
        log_density: float,
        n_rows: float,
        scatters: np.ndarray | None = None,
    ) -> None:
        self.counts, self.means, self.rotated, self.squares = counts, means, rotated, squares
        self.log_density, self.n_rows, self.scatters = log_density, n_rows, scatters

    def merge(self, other: MixtureStatistics) -> MixtureStatistics:
        """Take in the statistics of other rows; returns itself."""
        if self.means.shape != other.means.shape or (self.scatters is None) != (other.scatters is None):
            raise ArgumentError(
                "other", f"statistics of {self.means.shape} (components, columns)", other.means.shape
            )
        total = self.counts + other.counts
        safe = np.where(total > 0, total, 1.0)
        share, both = (other.counts / safe)[:, None], (self.counts * other.counts / safe)[:, None]
        shift, delta = other.rotated - self.rotated, other.means - self.means
        self.squares = self.squares + other.squares + both * shift**2
        if self.scatters is not None and other.scatters is not None:
            self.scatters = self.scatters + other.scatters
            self.scatters += both[:, :, None] * delta[:, :, None] * delta[:, None, :]
        self.means, self.rotated = self.means + share * delta, self.rotated + share * shift
        self.counts = total
        self.log_density += other.log_density
        self.n_rows += other.n_rows
        return self

    def forget(self, share: float) -> None:
        """What was seen so far counts ``share`` as much from now on."""
        self.counts, self.squares = self.counts * share, self.squares * share
        self.log_density, self.n_rows = self.log_density * share, self.n_rows * share
        if self.scatters is not None:
            self.scatters = self.scatters * share
