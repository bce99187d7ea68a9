"""First and second moments of a stream of rows, exact (n² numbers) or sketched, and a sample of the rows."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.factor import Factor

RESERVOIR, NUMBERS = 4096, 2**22  # rows kept at most, and numbers in them; but never fewer rows than
FEWEST = 1024
BLOCK = 1024  # rows hashed at a time


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

    Rows are added ``size`` at a time. Of the old directions and the new rows together, the leading ones are kept.
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
    """A sample of `RESERVOIR` rows of a stream, or fewer if they are long: those whose contents hash lowest.

    It is as uniform as a random sample, and the same whatever the order of the rows, their blocks and the seed. So what
    is chosen on held-out rows does not change from run to run.
    """

    def __init__(self) -> None:
        self._rows: np.ndarray | None = None
        self._keys = np.zeros(0, np.uint64)

    def update(self, X: np.ndarray) -> None:
        """Take in rows (m, n)."""
        if self._rows is None:
            self._rows = X[:0].copy()
        keys, room = row_hashes(X), min(RESERVOIR, max(FEWEST, NUMBERS // X.shape[1]))
        highest = self._keys[-1] if len(self._keys) == room else np.uint64(2**64 - 1)
        low = np.nonzero(keys <= highest)[0]
        keys = np.concatenate([self._keys, keys[low]])
        order = np.argsort(keys, kind="stable")[:room]
        self._keys, self._rows = keys[order], np.concatenate([self._rows, X[low]])[order]

    @property
    def rows(self) -> np.ndarray:
        """The sample in an order that has nothing to do with that of the stream, shape (m, n)."""
        assert self._rows is not None
        return self._rows


def row_hashes(X: np.ndarray) -> np.ndarray:  # shape: (m,), uint64
    """A hash of each row's bytes: words times fixed random odd numbers modulo 2⁶⁴, then mixed (as in MurmurHash3)."""
    words = np.ascontiguousarray(X).view(np.uint32)
    odd = np.random.default_rng(0).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    parts = [words[i : i + BLOCK].astype(np.uint64) @ odd for i in range(0, len(words), BLOCK)]
    keys = np.concatenate([*parts, np.zeros(0, np.uint64)])
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(multiplier)
    return keys ^ (keys >> np.uint64(33))
