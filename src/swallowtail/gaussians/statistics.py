"""Statistics of a stream of rows that merge: moments, exact (n² numbers) or sketched, and a sample of the rows.

Each has ``update(X, weights)``, ``merge(other)`` and ``forget(share)``. Merging is associative and commutative, to
rounding for exact moments and exactly for the sample. All of them are plain arrays, so they can be pickled and sent.
`RowStatistics` holds what a `GivensCovariance` needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.factor import Factor
from swallowtail.gaussians.rows import finite_rows, plain_weights

RESERVOIR, NUMBERS = 4096, 2**22  # rows kept at most, and numbers in them; but never fewer rows than
FEWEST = 1024
BLOCK = 1024  # rows hashed at a time
NUMBERS_AT_ONCE = 2**22  # of X that an update works on


class DenseMoments:
    """Weight N, mean (n,) and M = Σ w (x − mean)(x − mean)ᵀ (n, n) of all rows so far.

    Blocks are merged about their own means (Chan, Golub & LeVeque), so a large mean costs no digits.
    """

    def __init__(self, n: int, assume_centered: bool = False) -> None:
        self.n, self.centered = n, assume_centered
        self.count, self.mean, self.scatter = 0.0, np.zeros(n), np.zeros((n, n))

    def update(self, X: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take in rows (m, n), each as often as its weight (m,) says; once by default."""
        self._add(*self._of(X, weights))

    def merge(self, other: DenseMoments) -> DenseMoments:
        """Take in all that another has seen; returns itself."""
        self._add(other.count, other.mean, other.scatter)
        return self

    def forget(self, share: float) -> None:
        """What was seen so far counts ``share`` as much from now on."""
        self.count *= share
        self.scatter *= share

    def _add(self, count: float, mean: np.ndarray, scatter: np.ndarray) -> None:
        total = self.count + count
        if count <= 0:
            return
        delta = mean - self.mean
        self.scatter += scatter
        self.scatter += np.outer(delta, delta * (self.count * count / total))
        self.mean = self.mean + delta * (count / total)
        self.count = total

    @property
    def covariance(self) -> np.ndarray:  # shape: (n, n)
        """M / N."""
        return self.scatter / self.count

    @property
    def variances(self) -> np.ndarray:  # shape: (n,)
        """Of every column."""
        return np.diagonal(self.scatter) / self.count

    def without(self, X: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The covariance of all rows but these (m, n), and these minus the mean of all others."""
        m, mean, scatter = self._of(X, weights)
        rest = self.count - m
        others = self.mean + (self.mean - mean) * (m / rest)
        delta = mean - others
        left = self.scatter - scatter - np.outer(delta, delta * (rest * m / self.count))
        # A difference of positive matrices: where nothing is left, rounding may fall below zero. Where rows differ in
        # the last digits of their mean only, the means' rounding counts as spread, or the rest is not positive.
        diagonal = np.einsum("ii->i", left)
        np.maximum(diagonal, 0.0, out=diagonal)
        diagonal += rest * self.n * (np.finfo(np.float64).eps * others) ** 2
        return left / rest, X - others

    def _of(self, X: np.ndarray, weights: np.ndarray | None) -> tuple[float, np.ndarray, np.ndarray]:
        x = X.astype(np.float64)
        count = float(len(x)) if weights is None else float(weights.sum())
        known = self.centered or count <= 0
        mean = np.zeros(self.n) if known else np.average(x, axis=0, weights=weights)
        x -= mean
        return count, mean, x.T @ x if weights is None else (x * weights[:, None]).T @ x


class SketchMoments:
    """Weight, mean and variances of all rows, and the leading ``size`` directions of spread: O(n · size) numbers.

    Rows are added ``size`` at a time. Of the old directions and the new rows together, the leading ones are kept.
    """

    def __init__(self, n: int, size: int, assume_centered: bool = False) -> None:
        self.n, self.size, self.centered = n, size, assume_centered
        self.count, self.mean, self.squares = 0.0, np.zeros(n), np.zeros(n)
        self.rows = np.zeros((0, n))  # Rᵀ R ≈ Σ w (x − mean)(x − mean)ᵀ

    def update(self, X: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take in rows (m, n), each as often as its weight (m,) says; once by default."""
        for start in range(0, len(X), max(self.size, 64)):
            part = slice(start, start + max(self.size, 64))
            x = X[part].astype(np.float64)
            w = np.ones(len(x)) if weights is None else weights[part]
            if w.sum() > 0:
                mean = np.zeros(self.n) if self.centered else np.average(x, axis=0, weights=w)
                x = (x - mean) * np.sqrt(w)[:, None]
                self._add(float(w.sum()), mean, (x * x).sum(0), x)

    def merge(self, other: SketchMoments) -> SketchMoments:
        """Take in all that another has seen; returns itself."""
        if other.count > 0:
            self._add(other.count, other.mean, other.squares, other.rows)
        return self

    def forget(self, share: float) -> None:
        """What was seen so far counts ``share`` as much from now on."""
        self.count *= share
        self.squares *= share
        self.rows *= np.sqrt(share)

    def _add(self, count: float, mean: np.ndarray, squares: np.ndarray, rows: np.ndarray) -> None:
        total, delta = self.count + count, mean - self.mean
        shift = delta * np.sqrt(self.count * count / total)
        self.squares = self.squares + squares + shift * shift
        self.mean = self.mean + delta * (count / total)
        self.count = total
        self.rows = _leading(np.concatenate([self.rows, rows, shift[None]]), self.size)

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

    def __init__(self, n: int, dtype: Any) -> None:
        self.rows = np.zeros((0, n), dtype)  # in an order that has nothing to do with that of the stream
        self.weights = np.zeros(0)
        self.keys = np.zeros(0, np.uint64)  # hashes, rising

    def update(self, X: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take in rows (m, n)."""
        X = X.astype(self.rows.dtype, copy=False)
        weights = np.ones(len(X)) if weights is None else weights
        self._add(row_hashes(X), X, weights)

    def merge(self, other: Reservoir) -> Reservoir:
        """Take in all that another has kept; returns itself."""
        self._add(other.keys, other.rows.astype(self.rows.dtype, copy=False), other.weights)
        return self

    def forget(self, share: float) -> None:
        """What was seen so far counts ``share`` as much from now on."""
        left = self.weights * share
        kept = left > 0
        self.keys, self.rows, self.weights = self.keys[kept], self.rows[kept], left[kept]

    @property
    def room(self) -> int:
        """How many rows are kept at most."""
        return min(RESERVOIR, max(FEWEST, NUMBERS // max(1, self.rows.shape[1])))

    def up_to(self, key: np.uint64) -> Reservoir:
        """Only those rows whose hash is at most ``key``."""
        kept, found = self.keys <= key, Reservoir(self.rows.shape[1], self.rows.dtype)
        found.keys, found.rows, found.weights = self.keys[kept], self.rows[kept], self.weights[kept]
        return found

    def _add(self, keys: np.ndarray, X: np.ndarray, weights: np.ndarray) -> None:
        room = self.room
        highest = self.keys[-1] if len(self.keys) == room else np.uint64(2**64 - 1)
        low = np.nonzero((keys <= highest) & (weights > 0))[0]
        keys = np.concatenate([self.keys, keys[low]])
        order = np.argsort(keys, kind="stable")[:room]
        self.keys, self.rows = keys[order], np.concatenate([self.rows, X[low]])[order]
        self.weights = np.concatenate([self.weights, weights[low]])[order]


def row_hashes(X: np.ndarray) -> np.ndarray:  # shape: (m,), uint64
    """A hash of each row's bytes: words times fixed random odd numbers modulo 2⁶⁴, then mixed (as in MurmurHash3)."""
    words = np.ascontiguousarray(X).view(np.uint32)
    odd = np.random.default_rng(0).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    parts = [words[i : i + BLOCK].astype(np.uint64) @ odd for i in range(0, len(words), BLOCK)]
    keys = np.concatenate([*parts, np.zeros(0, np.uint64)])
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(multiplier)
    return keys ^ (keys >> np.uint64(33))


class RowStatistics:
    """All that a `GivensCovariance` keeps of the rows it has seen: moments, and a sample of rows to hold out.

    The sample is up to `RESERVOIR` rows as they came. It goes wherever the statistics go, into a pickle as well.

    Args:
        n: columns.
        dtype: float32 or float64, of the rows that are kept.
        sketch_size: rank of a sketch to keep instead of n² moments; None: exact moments.
        assume_centered: the mean is 0.

    >>> X = np.arange(12.0).reshape(6, 2)
    >>> a, b = RowStatistics(2, np.float64), RowStatistics(2, np.float64)
    >>> a.update(X[:1]); b.update(X[1:])
    >>> a.merge(b).moments.mean.tolist()
    [5.0, 6.0]
    """

    def __init__(
        self, n: int, dtype: Any, sketch_size: int | None = None, assume_centered: bool = False
    ) -> None:
        self.n, self.dtype, self.sketch_size = (
            checks.integer("n", n, at_least=1),
            np.dtype(dtype),
            sketch_size,
        )
        self.moments: DenseMoments | SketchMoments = (
            DenseMoments(n, assume_centered)
            if sketch_size is None
            else SketchMoments(n, sketch_size, assume_centered)
        )
        self.sample = Reservoir(n, self.dtype)
        self.n_rows = 0

    def update(self, X: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take in rows (m, n), each as often as its weight (m,) says; once by default."""
        # One NaN would spoil everything that was seen before and everything that these are merged with.
        X = finite_rows(X, self.n, self.dtype)
        weights = None if weights is None else plain_weights("weights", weights, len(X))
        for rows in blocks(X):
            self.moments.update(X[rows], None if weights is None else weights[rows])
        self.sample.update(X, weights)
        self.n_rows += len(X)

    def merge(self, other: RowStatistics) -> RowStatistics:
        """Take in all that another has seen; returns itself."""
        mine, theirs = (
            (s.n, s.sketch_size, s.moments.centered) if isinstance(s, RowStatistics) else type(s).__name__
            for s in (self, other)
        )
        if mine != theirs:
            words = "(columns, sketch size, assume_centered)"
            raise ArgumentError("other", f"statistics of the same kind, {words} = {mine}", theirs)
        finite_rows(other.sample.rows, self.n, self.dtype)
        self.moments.merge(other.moments)  # type: ignore[arg-type]
        self.sample.merge(other.sample)
        self.n_rows += other.n_rows
        return self

    def forget(self, share: float) -> None:
        """What was seen so far counts ``share`` as much from now on: 1 keeps all, 0 nothing."""
        if checks.number("share", share, at_least=0) > 1:
            raise ArgumentError("share", "a number from 0 to 1", share)
        self.moments.forget(share)
        self.sample.forget(share)


def blocks(X: np.ndarray) -> Iterator[slice]:
    """Slices of rows, about `NUMBERS_AT_ONCE` numbers each."""
    step = max(1, NUMBERS_AT_ONCE // X.shape[1])
    return (slice(start, start + step) for start in range(0, len(X), step))
