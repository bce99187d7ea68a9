"""Rotations and a few rank-one terms: H ≈ Q D Qᵀ + U diag(w) Uᵀ, at the work of rotations alone.

A rank-one term costs 2n multiply-adds in a product, as much as n/2 rotations, and is bought with them. It pays
where a few strong directions stand out that no short product of rotations can reach: 5 large eigenvalues of 64
in random directions. The two parts are fitted in turns: rotations on H less the terms, then the best terms for
what the rotations leave.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.product import conjugate, flat_pairs
from swallowtail.fitting.core.records import Callback, DenseFit, Stop
from swallowtail.fitting.methods.pairs import default_cycles, fit_pairs

SMALL = 128  # up to this n every rank is tried, beyond it powers of two, with fewer turns
SCOUTS, ROUNDS = (4, 2), (6, 3)  # turns for each rank, and for the best one; small n, large n
# A turn takes this fraction of the default cycles, the last of the best rank all of them. Scouting without cycles
# would favour terms: it is the rotations that cycles improve.
SCOUT_SHARE, SHARE = 8, 4


class HybridFit(NamedTuple):
    """H ≈ Q diag(eigenvalues) Qᵀ + U diag(w) Uᵀ, and how the fit got there."""

    rotations: DenseFit  # of H less the terms
    basis: np.ndarray  # U, orthonormal, shape: (n, r)
    weights: np.ndarray  # w, shape: (r,)
    history: list[tuple[str, int, float]]  # (stage, rotations, squared relative error), best so far


def fit_hybrid(
    H: np.ndarray,
    n_rotations: int,
    rank: int | None = None,
    *,
    seed: int = 0,
    callback: Callback | None = None,
) -> HybridFit:
    """Fit rotations and rank-one terms that together cost what ``n_rotations`` rotations cost.

    Args:
        H: symmetric, shape (n, n).
        n_rotations: the budget; each term takes n/2 of it.
        rank: the number of terms; None tries what the budget allows, none included, and keeps the best.
        seed: of the rotations' cycles.
        callback: as in `fit_pairs`.

    >>> fit = fit_hybrid(np.eye(4) + np.ones((4, 4)), 2, rank=1)
    >>> fit.weights.round(6).tolist(), len(fit.rotations.angles)
    ([4.0], 0)
    """
    n, price = len(H), max(1, -(-len(H) // 2))
    most = min(n, n_rotations // price)
    if rank is not None and checks.integer("rank", rank, at_least=0) > most:
        raise ArgumentError(
            "rank",
            f"at most {most}, as {n_rotations} rotations pay for",
            rank,
            f"try `n_rotations={rank * price}` or more",
        )
    ranks = [rank] if rank is not None else list(range(most + 1))
    if rank is None and n > SMALL:
        ranks = [0] + [2**k for k in range(most.bit_length()) if 2**k <= most]
    largest = float(np.abs(H).max(initial=0.0))
    # Taken out, because squares of entries near 1e±200 leave float64.
    scale = float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0
    turns = _Turns(H / scale, seed, callback)
    if len(ranks) > 1:
        for r in ranks:
            turns.run(n_rotations - r * price, r, SCOUTS[n > SMALL], SCOUT_SHARE)
        ranks = sorted({0, len(turns.best.weights)})  # rotations alone get their chance in full
    for r in ranks:
        turns.run(n_rotations - r * price, r, ROUNDS[n > SMALL] if r else 1, SHARE, whole=True)
    best = turns.best
    rotations = best.rotations._replace(eigenvalues=best.rotations.eigenvalues * scale)
    return best._replace(rotations=rotations, weights=best.weights * scale, history=turns.history)


class _Turns:
    """The best fit so far, and the turns that look for a better one."""

    def __init__(self, H: np.ndarray, seed: int, callback: Callback | None) -> None:
        self.H, self.seed, self._callback = H, seed, callback
        self.norm2 = float(np.vdot(H, H)) or 1.0
        self.history: list[tuple[str, int, float]] = []
        self.best: Any = None
        self._value, self._stopped = np.inf, False

    def run(self, n_rotations: int, rank: int, rounds: int, share: int, whole: bool = False) -> None:
        """Rotations and terms in turns, from the terms that are best beside a multiple of the identity.

        A turn takes a ``share``-th of the default cycles; with ``whole``, the last one all.
        """
        values, vectors = np.linalg.eigh(self.H)
        away = values - np.median(values)
        order = np.argsort(-np.abs(away), kind="stable")[:rank]
        basis, weights = vectors[:, order], away[order]
        for index in range(rounds):
            if self._stopped and self.best is not None:
                return
            last = whole and index == rounds - 1
            cycles = default_cycles(len(self.H), n_rotations) // (1 if last else share)
            rest = self.H - (basis * weights) @ basis.T
            rest = 0.5 * (rest + rest.T)
            fit = fit_pairs(rest, n_rotations, cycles=cycles, seed=self.seed + index, callback=self._watched)
            left = self.H - _dense(fit)
            if rank:
                values, vectors = np.linalg.eigh(0.5 * (left + left.T))
                order = np.argsort(-np.abs(values), kind="stable")[:rank]
                basis, weights = vectors[:, order], values[order]
            error = left - (basis * weights) @ basis.T
            value = float(np.vdot(error, error)) / self.norm2
            if value < self._value:
                self._value = value
                self.best = HybridFit(fit, np.ascontiguousarray(basis), weights, [])
                self.history.append(("terms", n_rotations, value))

    def _watched(self, stage: str, n_rotations: int, objective: float) -> None:
        """`fit_pairs` catches what a callback raises; no further turn should begin then."""
        if self._callback is None:
            return
        try:
            self._callback(stage, n_rotations, min(objective, self._value))
        except (Stop, KeyboardInterrupt):
            self._stopped = True
            raise


def _dense(fit: DenseFit) -> np.ndarray:  # shape: (n, n)
    """Q D Qᵀ: conjugating D by the rotations backwards, with their angles turned."""
    pairs = flat_pairs(fit.wiring)
    return conjugate(np.diag(fit.eigenvalues), np.ascontiguousarray(pairs[::-1]), -fit.angles[::-1])
