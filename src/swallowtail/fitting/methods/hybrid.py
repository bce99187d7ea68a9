"""The family that holds its rivals: H ≈ Q D Qᵀ + U diag(w) Uᵀ, from no rotations at all to no terms at all.

A rank-one term is bought with rotations: it costs 2n multiply-adds in a product, as much as n/2 rotations, and n + 1
floats. Terms pay where a few strong directions stand out that no short product of rotations can reach. A `HybridPlan`
says what a budget buys. Its members are fitted here:

- c·I + low rank and a diagonal + low rank, without rotations (`methods.low_rank`);
- rotations and r terms, for several r: rotations on H less the terms, then the best terms for what the rotations
  leave, in turns. Short turns find out which r are worth long ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.build import FEWEST
from swallowtail.fitting.core.objectives import EXACT
from swallowtail.fitting.core.product import conjugate, power_of_two
from swallowtail.fitting.core.records import Callback, DenseFit, History, Listener, Stop
from swallowtail.fitting.core.search import FINISH
from swallowtail.fitting.methods.low_rank import DiagonalLowRank, cut, diagonal_low_rank
from swallowtail.fitting.methods.pairs import default_cycles, fit_pairs
from swallowtail.wiring import Pairs

SMALL = 128  # up to this n scouts take milliseconds: every rank is tried, with more turns
SCOUTS, SCOUT_POLISH = (3, 2), 20  # turns of a scout, small n and large; L-BFGS iterations in each
# Cycles will take this much off a scout's error if all of the budget goes into rotations, and less in proportion;
# 0.1 to 0.3 on sixteen matrices.
CYCLES_GAIN = 0.2
CLOSE = 1.08  # an error this much above the least expected still gets long turns
ROUNDS, SHARE = (3, 2), 4  # long turns; all but the last take a SHARE-th of the default cycles


class HybridPlan(NamedTuple):
    """What a budget buys."""

    multiple: int  # the most terms beside c·I
    rotations: tuple[int, ...]  # at index r: the most rotations beside a diagonal and r terms

    @classmethod
    def of_equal_work(cls, n: int, n_rotations: int) -> HybridPlan:
        """The multiply-adds of so many rotations; a term costs n/2 of them."""
        price = max(1, -(-n // 2))
        most = min(n, n_rotations // price)
        return cls(most, tuple(n_rotations - r * price for r in range(most + 1)))

    @property
    def ranks(self) -> range:
        """The numbers of terms that it pays for beside a diagonal."""
        return range(len(self.rotations))


class HybridFit(NamedTuple):
    """H ≈ Q diag(eigenvalues) Qᵀ + U diag(w) Uᵀ, and how the fit got there."""

    rotations: DenseFit  # of H less the terms
    basis: np.ndarray  # U, orthonormal, shape: (n, r)
    weights: np.ndarray  # w, shape: (r,)
    history: History  # (stage, rotations, squared relative error), best so far

    @classmethod
    def without_rotations(cls, form: DiagonalLowRank, history: History) -> HybridFit:
        """diag(d) + U diag(w) Uᵀ."""
        empty = DenseFit(Pairs(len(form.V), []), np.zeros(0), form.diagonal, history)
        return cls(empty, np.ascontiguousarray(form.V), form.w, history)

    @property
    def value(self) -> float:
        """The squared relative error."""
        return self.history[-1][2]


def fit_hybrid(
    H: np.ndarray,
    plan: HybridPlan,
    rank: int | None = None,
    *,
    seed: int = 0,
    callback: Callback | None = None,
) -> list[HybridFit]:
    """Fit the members of the family that a plan pays for.

    Args:
        H: symmetric, shape (n, n).
        plan: what may be bought.
        rank: the number of terms; None tries what the plan allows, none included.
        seed: of the rotations' cycles.
        callback: as in `fit_pairs`.

    Returns:
        The members worth comparing, the one of least error first.

    >>> best, *others = fit_hybrid(np.eye(4) + np.ones((4, 4)), HybridPlan(1, (2, 0)), rank=1)
    >>> best.weights.round(6).tolist(), len(best.rotations.angles)
    ([4.0], 0)
    """
    most = len(plan.rotations) - 1
    if rank is not None and checks.integer("rank", rank, at_least=0) > most:
        raise ArgumentError("rank", f"at most {most}, as the budget pays for", rank, "try a larger budget")
    scale = power_of_two(H)
    turns = _Turns(H / scale, seed, callback)
    if rank is None:
        turns.without_rotations(plan)
        ranks = _worth_long_turns(turns, plan)
    else:
        ranks = [rank]
    for r in ranks:
        turns.long(plan.rotations[r], r)
    return [_scaled(fit, scale) for fit in sorted(turns.found.values(), key=lambda fit: fit.value)]


def scouted_ranks(n: int, most: int) -> list[int]:
    """Which numbers of terms are tried: all up to n = 128, beyond it 0, 1, 2, 3, 4, 6, 9, 13 and so on."""
    if n <= SMALL:
        return list(range(most + 1))
    ranks = [0]
    while ranks[-1] < most:
        ranks.append(min(most, ranks[-1] + max(1, ranks[-1] // 2)))
    return ranks


def _worth_long_turns(turns: _Turns, plan: HybridPlan) -> list[int]:
    """The best two ranks by what scouts reach and cycles should add; the second only if it is close."""
    expected: dict[int, float] = {}
    for r in scouted_ranks(len(turns.H), len(plan.rotations) - 1):
        if turns.listener.stopped:
            return []
        share = plan.rotations[r] / max(plan.rotations[0], 1)
        expected[r] = turns.scout(plan.rotations[r], r) ** 0.5 * (1 - CYCLES_GAIN * share)
        worse = [value > min(expected.values()) for value in expected.values()]
        if len(turns.H) > SMALL and len(worse) > 3 and all(worse[-3:]):
            break  # more terms have not paid three times over
    order = sorted(expected, key=lambda r: expected[r])
    return [r for r in order[:2] if expected[r] <= CLOSE * expected[order[0]]]


class _Turns:
    """The members found so far, by kind, and the turns that look for better ones."""

    def __init__(self, H: np.ndarray, seed: int, callback: Callback | None) -> None:
        self.H, self.seed, self.listener = H, seed, Listener(callback)
        self.norm2 = float(np.vdot(H, H)) or 1.0
        self.found: dict[str, HybridFit] = {}
        self._values, self._vectors = np.linalg.eigh(H)

    def without_rotations(self, plan: HybridPlan) -> None:
        """c·I + low rank, and a diagonal + low rank."""
        by_rank = lambda r: cut(self._values, self._vectors, r)
        self._keep_form("c·I", by_rank, plan.multiple)
        with contextlib.suppress(Stop, KeyboardInterrupt):
            pulse = lambda: self.listener("terms", 0, self.found["c·I"].value)
            fit = lambda r: diagonal_low_rank(self.H, r, by_rank(r), pulse=pulse)
            self._keep_form("diagonal", fit, len(plan.rotations) - 1)

    def _keep_form(self, name: str, fit: Callable[[int], DiagonalLowRank], most: int) -> None:
        """Keep the form with the most terms or, where fewer are exact as well, with the fewest that are."""
        form, low = fit(most), 0
        while low < most and self._left(form) < EXACT:
            middle = (low + most) // 2
            fewer = fit(middle)
            if self._left(fewer) < EXACT:
                form, most = fewer, middle
            else:
                low = middle + 1
        self._keep(name, HybridFit.without_rotations(form, [(name, 0, self._left(form))]))

    def _left(self, form: DiagonalLowRank) -> float:
        return self._value(self.H - (form.V * form.w) @ form.V.T - np.diag(form.diagonal))

    def scout(self, n_rotations: int, rank: int) -> float:
        """The error that short turns reach."""
        turns = [0] * SCOUTS[len(self.H) > SMALL]
        return self._run(f"scout {rank}", n_rotations, rank, turns, SCOUT_POLISH, FEWEST)

    def long(self, n_rotations: int, rank: int) -> None:
        """Turns with cycles, from where the scout was, or else from the start."""
        whole = default_cycles(len(self.H), n_rotations)
        rounds = ROUNDS[len(self.H) > SMALL] if rank else 1
        self._run(f"rank {rank}", n_rotations, rank, [whole // SHARE] * (rounds - 1) + [whole])

    def _run(
        self,
        name: str,
        n_rotations: int,
        rank: int,
        cycles: list[int],
        finish: int | None = None,
        steps: int | None = None,
    ) -> float:
        """Rotations and terms in turns, one per number of cycles."""
        scout, start = self.found.get(f"scout {rank}"), cut(self._values, self._vectors, rank)
        basis, weights = (start.V, start.w) if scout is None else (scout.basis, scout.weights)
        best, iterations = np.inf, FINISH if finish is None else finish
        for index, count in enumerate(cycles):
            if self.listener.stopped and index:
                break
            rest = self.H - (basis * weights) @ basis.T
            fit = fit_pairs(
                0.5 * (rest + rest.T),
                n_rotations,
                cycles=count,
                seed=self.seed + index,
                callback=self.listener,
                finish=iterations,
                steps=steps,
            )
            left = self.H - _dense(fit)
            basis, weights = _strongest(0.5 * (left + left.T), rank, basis)
            value = self._value(left - (basis * weights) @ basis.T)
            best = min(best, value)
            self._keep(
                name, HybridFit(fit, np.ascontiguousarray(basis), weights, [("terms", n_rotations, value)])
            )
            if not rank:
                break
        return best

    def _value(self, rest: np.ndarray) -> float:
        return float(np.vdot(rest, rest)) / self.norm2

    def _keep(self, name: str, fit: HybridFit) -> None:
        before = self.found.get(name)
        if before is None or fit.value < before.value:
            history = [] if before is None else before.history
            self.found[name] = fit._replace(history=[*history, *fit.history])


def _strongest(A: np.ndarray, rank: int, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ``rank`` eigenvectors of A whose eigenvalues are largest in magnitude, and these."""
    if not rank:
        return np.zeros((len(A), 0)), np.zeros(0)
    if len(A) <= SMALL or 5 * rank > len(A):
        values, vectors = np.linalg.eigh(A)
        order = np.argsort(-np.abs(values), kind="stable")[:rank]
        return vectors[:, order], values[order]
    values, vectors = scipy.sparse.linalg.eigsh(A, k=rank, which="LM", v0=start.sum(1) + 1e-3, tol=1e-6)
    return vectors, values


def _scaled(fit: HybridFit, scale: float) -> HybridFit:
    rotations = fit.rotations._replace(eigenvalues=fit.rotations.eigenvalues * scale)
    return fit._replace(rotations=rotations, weights=fit.weights * scale)


def _dense(fit: DenseFit) -> np.ndarray:  # shape: (n, n)
    """Q D Qᵀ: conjugating D by the rotations backwards, with their angles turned."""
    pairs = fit.wiring.flat_pairs()
    return conjugate(np.diag(fit.eigenvalues), np.ascontiguousarray(pairs[::-1]), -fit.angles[::-1])
