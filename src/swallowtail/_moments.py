"""First and second moments of a stream of rows: n² numbers, or a sketch; and a few rows kept aside."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.factor import Factor

RESERVOIR = 1024  # rows kept


class DenseMoments:
    """Count, mean (n,) and M = Σ (x − mean)(x − mean)ᵀ (n, n) of all rows so far.

    Blocks are merged about their own means (Chan, Golub & LeVeque), so a large mean costs no digits.
    """

    def __init__(self, n: int, assume_centered: bool = False) -> None:
        self.n, self.centered = n, assume_centered
        self.count, self.mean, self.scatter = 0, np.zeros(n), np.zeros((n, n))

    def update(self, X: np.ndarray) -> None:
        """Take in rows (m, n)."""
        m, mean, scatter = self._of(X)
        total = self.count + m
        delta = mean - self.mean
        self.scatter += scatter
        self.scatter += np.outer(delta, delta * (self.count * m / total))
        self.mean = self.mean + delta * (m / total)
        self.count = total

    @property
    def covariance(self) -> np.ndarray:  # shape: (n, n)
        """M / N."""
        return self.scatter / self.count

    def without(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The covariance of all rows but these (m, n), and these minus the mean of all others."""
        m, mean, scatter = self._of(X)
        rest = self.count - m
        others = self.mean + (self.mean - mean) * (m / rest)
        delta = mean - others
        left = self.scatter - scatter - np.outer(delta, delta * (rest * m / self.count))
        # A difference of positive matrices: where nothing is left, rounding may fall below zero.
        diagonal = np.einsum("ii->i", left)
        np.maximum(diagonal, 0.0, out=diagonal)
        return left / rest, X - others

    def _of(self, X: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        x = X.astype(np.float64)
        mean = np.zeros(self.n) if self.centered else x.mean(0)
        x -= mean
        return len(x), mean, x.T @ x


class SketchMoments:
    """Count, mean and variances of all rows, and the leading ``size`` directions of spread: O(n · size) numbers.

    Rows are taken in ``size`` at a time; of the old directions and the new rows together, the leading ones stay.
    """

    def __init__(self, n: int, size: int, assume_centered: bool = False) -> None:
        self.n, self.size, self.centered = n, size, assume_centered
        self.count, self.mean, self.squares = 0, np.zeros(n), np.zeros(n)
        self.rows = np.zeros((0, n))  # Rᵀ R ≈ Σ (x − mean)(x − mean)ᵀ

    def update(self, X: np.ndarray) -> None:
        """Take in rows (m, n)."""
        for start in range(0, len(X), max(self.size, 64)):
            x = X[start : start + max(self.size, 64)].astype(np.float64)
            m, mean = len(x), np.zeros(self.n) if self.centered else x.mean(0)
            total, delta = self.count + m, mean - self.mean
            shift = delta * np.sqrt(self.count * m / total)
            x -= mean
            self.squares += (x * x).sum(0) + shift * shift
            self.mean = self.mean + delta * (m / total)
            self.count = total
            self.rows = _leading(np.concatenate([self.rows, x, shift[None]]), self.size)

    @property
    def variances(self) -> np.ndarray:  # shape: (n,)
        """Of every column."""
        return self.squares / self.count

    def factor(self) -> Factor:
        """The sketch as Z diag(w) Zᵀ with orthonormal Z."""
        length = np.sqrt((self.rows**2).sum(1))
        kept = length > 1e-10 * length.max(initial=0.0)
        basis = np.ascontiguousarray((self.rows[kept] / length[kept, None]).T)
        return Factor(0.0, basis, length[kept] ** 2 / self.count)

    def rest(self) -> np.ndarray:  # shape: (n,)
        """What the sketch leaves of every column's variance."""
        return np.maximum(self.variances - (self.rows**2).sum(0) / self.count, 0.0)


def _leading(R: np.ndarray, size: int) -> np.ndarray:
    """Orthogonal rows whose RᵀR is that of R (m, n) on its leading ``size`` directions; through R Rᵀ, O(m²n)."""
    values, vectors = np.linalg.eigh(R @ R.T)
    return vectors[:, ::-1][:, :size].T @ R if values[-1] > 0 else R[:0]


class Reservoir:
    """A uniform sample of at most `RESERVOIR` rows of a stream (Vitter's algorithm R)."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._seen = 0
        self._rows: np.ndarray | None = None

    def update(self, X: np.ndarray) -> None:
        """Take in rows (m, n)."""
        if self._rows is None:
            self._rows = X[:0].copy()
        room = min(len(X), RESERVOIR - len(self._rows))
        if room > 0:
            self._rows = np.concatenate([self._rows, X[:room]])
        late = np.arange(self._seen + room, self._seen + len(X))
        slots = self._generator.integers(0, late + 1)
        for index in np.nonzero(slots < RESERVOIR)[0]:
            self._rows[slots[index]] = X[room + index]
        self._seen += len(X)

    @property
    def rows(self) -> np.ndarray:
        """The sample in random order, shape (m, n)."""
        assert self._rows is not None
        return self._generator.permutation(self._rows)
