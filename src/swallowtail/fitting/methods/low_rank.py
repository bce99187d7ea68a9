"""Low rank beside c·I or a diagonal, without rotations: the plain rivals, and the ends of the family of fits.

- c·I + low rank is a cut of the eigendecomposition.
- A diagonal + low rank is fitted in turns, as in minres factor analysis: the best low rank for H less the diagonal,
  then the diagonal of the rest. Factor models are met exactly.
- For the likelihood, probabilistic PCA and factor analysis.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from swallowtail.fitting.core.objectives import EXACT

FULL_EIGH = 1500  # up to this n all eigenvectors are cheaper than choosing which to ask for
SMALL = 400  # up to this n a second eigendecomposition is cheaper than the turns it saves
TURNS, FEW = 400, 10  # of the diagonal and the low rank, at most; so few are not worth that decomposition
FROM_HERE = 20  # turns from a second start, which goes on if it is ahead by then
WORK = 8e9  # multiply-adds that all turns together may take
SETTLED = 1e-7  # relative change of the error between two looks at which the turns end
LOOKS = 5  # turns between two looks
SPARE = 6  # more directions than asked for, so that a turn sees which ones would be better
MEMORY = 5  # diagonals that the extrapolation goes through
TURNS_LIKELIHOOD = 60
FLOOR = 1e-12  # of a variance, relative to the largest
FLOOR_FACTORS = 1e-8  # the same, of a diagonal beside factors


class DiagonalLowRank:
    """diag(d) + U diag(w) Vᵀ with r columns; d is one number or n of them, U is V unless it is given."""

    def __init__(
        self, d: float | np.ndarray, w: np.ndarray, V: np.ndarray, U: np.ndarray | None = None
    ) -> None:
        self.d, self.w, self.V, self.U = d, w, V, V if U is None else U
        self.shape = (len(V), len(V))

    @property
    def diagonal(self) -> np.ndarray:  # shape: (n,)
        """d, repeated where it is one number."""
        return np.broadcast_to(np.asarray(self.d, float), (len(self.V),)).copy()

    def __matmul__(self, X: np.ndarray) -> np.ndarray:
        d = self.d if np.ndim(self.d) == 0 else np.asarray(self.d)[:, None]
        return d * X + self.U @ (self.w[:, None] * (self.V.T @ X))


def low_rank(H: np.ndarray, ranks: list[int]) -> dict[int, DiagonalLowRank]:
    """The best c·I + rank r in Frobenius norm for each r: it takes away the extreme eigenvalues of H.

    Of the sorted eigenvalues the r taken away are some of the lowest and some of the highest, so that what
    is left has the least variance; c is its mean.
    """
    n, most = len(H), min(max(ranks, default=0), len(H))
    if n <= FULL_EIGH or 4 * most > n:
        values, vectors = np.linalg.eigh(H)
        return {r: cut(values, vectors, r) for r in ranks}
    # Extremes of H − cI by magnitude; c from the trace, corrected once for what they take away.
    trace, c = float(np.trace(H)), float(np.trace(H)) / n
    for _ in range(2):
        w, V = scipy.sparse.linalg.eigsh(H - c * np.eye(n), k=max(1, most), which="LM", v0=np.ones(n))
        c = (trace - float((w + c).sum())) / (n - len(w))
    order = np.argsort(-np.abs(w))
    result = {}
    for r in ranks:
        top = order[:r]
        kept = w[top] + c
        mean = (trace - float(kept.sum())) / max(1, n - r)
        result[r] = DiagonalLowRank(mean, kept - mean, V[:, top])
    return result


def cut(values: np.ndarray, vectors: np.ndarray, r: int) -> DiagonalLowRank:
    """The best c·I + rank r, from the eigendecomposition with rising values."""
    n = len(values)
    r = min(r, n)
    scale = float(np.abs(values).max(initial=0.0)) or 1.0  # squares of entries near 1e±200 leave float64
    values = values / scale
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    low = np.arange(r + 1)  # how many of the lowest are taken away
    high = n - (r - low)
    count = max(1, n - r)
    variance = squares[high] - squares[low] - (sums[high] - sums[low]) ** 2 / count
    first = int(np.argmin(variance))
    last = n - (r - first)
    c = float((sums[last] - sums[first]) / count)
    taken = np.concatenate([np.arange(first), np.arange(last, n)])
    return DiagonalLowRank(c * scale, (values[taken] - c) * scale, vectors[:, taken])


def diagonal_low_rank(
    H: np.ndarray,
    rank: int,
    start: DiagonalLowRank | None = None,
    work: float = WORK,
    pulse: Callable[[], None] | None = None,
    settled: float = SETTLED,
    most: int = TURNS,
) -> DiagonalLowRank:
    """A diagonal + rank r, the best in Frobenius norm that turns reach from the best c·I + rank r, or a second start.

    Args:
        H: symmetric, shape (n, n).
        rank: r.
        start: the best c·I + rank r, if it is known.
        work: multiply-adds that the turns may take; 20 turns may be taken in any case.
        pulse: called between two turns; it may raise to end them.
        settled: relative change of the squared error between two looks at which the turns end.
        most: turns, at most.
    """
    n, rank = len(H), min(rank, len(H))
    if rank == 0:
        return DiagonalLowRank(np.diagonal(H).copy(), np.zeros(0), np.zeros((n, 0)))
    largest = float(np.abs(H).max(initial=0.0)) or 1.0
    A = H / largest
    start = low_rank(H, [rank])[rank] if start is None else start
    well_begun = n <= SMALL and most > FEW
    most = min(most, max(20, int(work / (4.0 * n * n * (rank + SPARE)))))
    best = _Turns(A, start.w / largest, start.V, well_begun)
    best.run(most, settled, pulse)
    if well_begun and best.error > EXACT:
        # There are local minima. This start has small diagonals: what is left of each entry by the largest beside it.
        beside = np.abs(A - np.diag(np.diagonal(A))).max(axis=1)
        again = _Turns(A, *_cut_off(A, np.diagonal(A) - beside, rank), well_begun)
        again.run(min(most, FROM_HERE), settled, pulse)
        if again.error < best.error:
            again.run(most, settled, pulse)
            best = again
    d, w, V = best.best
    return DiagonalLowRank(d * largest, w * largest, V)


def _cut_off(A: np.ndarray, d: np.ndarray, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The r eigenvalues of A − diag(d) that are largest in magnitude, and their vectors."""
    values, vectors = np.linalg.eigh(A - np.diag(d))
    order = np.argsort(-np.abs(values), kind="stable")[:r]
    return values[order], vectors[:, order]


class _Turns:
    """Diagonal and low rank in turns; the diagonals are extrapolated (Anderson's mixing) where that helps."""

    def __init__(self, A: np.ndarray, w: np.ndarray, V: np.ndarray, well_begun: bool) -> None:
        self.A, self.own = A, np.diagonal(A).copy()
        self.norm2 = float(np.vdot(A, A)) or 1.0
        self.d, self.w, self.V = self._diagonal(w, V), w, V
        self.best, self.error = (self.d, w, V), self._error(w, V)
        width = min(len(w) + SPARE, len(A))
        if well_begun:  # by a second eigendecomposition
            self.space = _cut_off(A, self.d, width)[1]
        else:
            spare = np.random.default_rng(0).standard_normal((len(A), width - len(w)))
            self.space = np.concatenate([V, spare], axis=1)

    def run(self, turns: int, settled: float, pulse: Callable[[], None] | None) -> None:
        before, seen, idle = self.error, list[tuple[np.ndarray, np.ndarray]](), 0
        for turn in range(turns):
            if pulse is not None:
                pulse()
            new = self._turn(self.d)
            seen = [*seen[-MEMORY:], (self.d, new)]
            if (turn + 1) % LOOKS == 0:
                error = self._error(self.w, self.V)
                if error < self.error:
                    self.best, self.error = (self._diagonal(self.w, self.V), self.w, self.V), error
                elif len(seen) > 1:  # the extrapolation went astray: on from the best, plainly
                    new, self.w, self.V = self.best
                    seen = []
                idle = idle + 1 if before - self.error <= settled * before else 0
                if idle == 2:
                    return
                before = self.error
            self.d = _mixed(seen) if len(seen) > 1 else new

    def _turn(self, d: np.ndarray) -> np.ndarray:
        """The low rank of A less the diagonal, from the last one by a step of subspace iteration; then the diagonal."""
        basis = np.linalg.qr(self.A @ self.space - d[:, None] * self.space)[0]
        image = self.A @ basis - d[:, None] * basis
        inner = basis.T @ image
        w, turn = np.linalg.eigh(0.5 * (inner + inner.T))
        order = np.argsort(-np.abs(w), kind="stable")
        self.space, rank = basis @ turn[:, order], len(self.w)
        self.w, self.V = w[order[:rank]], self.space[:, :rank]
        return self._diagonal(self.w, self.V)

    def _diagonal(self, w: np.ndarray, V: np.ndarray) -> np.ndarray:
        return np.asarray(self.own - (V * V) @ w)

    def _error(self, w: np.ndarray, V: np.ndarray) -> float:
        """The squared relative error of the off-diagonal part, all that the best diagonal leaves."""
        rest = self.A - (V * w) @ V.T
        np.fill_diagonal(rest, 0.0)
        return float(np.vdot(rest, rest)) / self.norm2


def _mixed(seen: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Anderson's mixing: the combination of the last images whose steps, combined alike, cancel best."""
    steps = np.stack([new - old for old, new in seen], axis=1)
    images = np.stack([new for _, new in seen], axis=1)
    differences = np.diff(steps, axis=1)
    by = np.linalg.lstsq(differences, steps[:, -1], rcond=1e-10)[0]
    return np.asarray(images[:, -1] - np.diff(images, axis=1) @ by)


def probabilistic_pca(S: np.ndarray, ranks: list[int]) -> dict[int, DiagonalLowRank]:
    """The most likely c·I + rank r, w > 0, for Gaussian data with sample covariance S."""
    values, vectors = np.linalg.eigh(S)
    result = {}
    for r in ranks:
        r = min(r, len(S))
        c = max(float(values[: len(S) - r].mean()) if r < len(S) else 0.0, FLOOR * float(values[-1]))
        top = slice(len(S) - r, None)
        result[r] = DiagonalLowRank(c, np.maximum(values[top] - c, 0.0), vectors[:, top])
    return result


def factor_analysis(S: np.ndarray, rank: int) -> DiagonalLowRank:
    """The most likely diagonal + rank r, w > 0, for Gaussian data with sample covariance S, as far as L-BFGS finds it.

    For a diagonal Ψ the best low rank is known: with θ, u the eigenvalues and vectors of Ψ^−½ S Ψ^−½, the largest r are
    kept, and the others leave Σ (θ − log θ − 1), whose derivative for log Ψᵢ is Σ (1 − θ) uᵢ².
    """
    n, rank = len(S), min(rank, len(S))
    floor = FLOOR_FACTORS * (float(np.diagonal(S).max(initial=0.0)) or 1.0)
    start = probabilistic_pca(S, [rank])[rank]
    if n == rank:
        return start

    def loss(log_psi: np.ndarray) -> tuple[float, np.ndarray]:
        root = np.exp(0.5 * log_psi)
        theta, u = np.linalg.eigh(S / root[:, None] / root)
        theta, u = np.maximum(theta[: n - rank], FLOOR), u[:, : n - rank]
        return float((theta - np.log(theta) - 1.0).sum()), (u * u) @ (1.0 - theta)

    best, best_loss = start, gaussian_loss(S, start)
    for first in (diagonal_low_rank(S, rank).diagonal, start.diagonal):
        begin = np.log(np.maximum(first, floor))
        iterations = min(TURNS_LIKELIHOOD, max(5, int(2e10 / n**3)))
        found = scipy.optimize.minimize(
            loss,
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=[(np.log(floor), None)] * n,
            options={"maxiter": iterations},
        )
        root = np.exp(0.5 * found.x)
        theta, u = np.linalg.eigh(S / root[:, None] / root)
        kept = slice(n - rank, None)
        form = DiagonalLowRank(root**2, np.maximum(theta[kept] - 1.0, 0.0), root[:, None] * u[:, kept])
        value = gaussian_loss(S, form)
        if value < best_loss:
            best, best_loss = form, value
    return best


def gaussian_loss(S: np.ndarray, B: DiagonalLowRank) -> float:
    """(log det B + tr B⁻¹S) / n, by Woodbury's formula: twice the loss in nats per dimension, up to a constant."""
    n, d = len(S), B.diagonal
    if d.min(initial=np.inf) <= 0 or (len(B.w) and B.w.min() < 0):
        return float("inf")
    M = B.V * np.sqrt(B.w) / np.sqrt(d)[:, None]
    inner = np.eye(M.shape[1]) + M.T @ M
    scaled = S / np.sqrt(d)[:, None] / np.sqrt(d)
    trace = np.trace(scaled) - np.trace(np.linalg.solve(inner, M.T @ scaled @ M))
    return float((np.log(d).sum() + np.linalg.slogdet(inner)[1] + trace) / n)
