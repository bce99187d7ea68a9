"""The paper's wiring, fitted on the whole objective: D eliminated, L-BFGS on all angles, several starts.

On a fixed butterfly every good optimiser ends at the same angle; what helps is more depth, more starts,
and the order in which the coordinates are laid out (neighbours in an image should meet early, for instance).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.alignment import Alignment
from swallowtail.fitting.core.objectives import Objective, Smooth
from swallowtail.fitting.core.order import jacobi_angles, learned_order
from swallowtail.fitting.core.product import MATRIX, conjugate, permuted
from swallowtail.fitting.core.records import AlignedFit, Callback, DenseFit, Stop
from swallowtail.fitting.core.trace import sweep_layers
from swallowtail.fitting.methods.recovery import recover_rotation, recover_symmetric
from swallowtail.wiring import Butterfly, Wiring

STARTS = 8
# Exact layer updates per start of a rotation; they end when one gains less than `SETTLED`.
SWEEPS, SETTLED = 30, 1e-4
SCOUT, FINISH = 60, 1000  # L-BFGS iterations for every start and kick, and for the best at the end
SHARE_KICKED, KICK = 0.1, 1.0  # a kick moves this share of the angles, by a normal number of this deviation
HEAT = 0.02  # a kick may end this much worse, relatively, at first; falls linearly to nothing
EFFORTS = {"quick": 0.2, "default": 1.0, "best": 4.0}  # times as many kicks; starts, if fewer
WORK = 2e10  # multiply-adds spent by default on kicks, and on random starts of a rotation: a second or two


def fit_butterfly(
    H: np.ndarray,
    depth: int = 1,
    *,
    reverse: bool = False,
    target: str = "matrix",
    effort: str = "default",
    starts: int | None = None,
    kicks: int | None = None,
    finish: int = FINISH,
    order: np.ndarray | str | None = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> DenseFit:
    """Fit H ≈ Q D Qᵀ with Q a butterfly.

    Args:
        H: symmetric, shape (n, n), any n.
        depth: how often the strides n/2, n/4, …, 1 are repeated.
        reverse: the wiring of Qᵀ, strides 1, 2, …, n/2.
        target: "matrix" minimises ‖H − QDQᵀ‖_F, "likelihood" minimises Σ log diag(QᵀHQ).
        effort: "quick", "default" or "best": how many starts and kicks there are unless you say.
        starts: random starts, beside Jacobi angles layer by layer and, at depth 1, direct recovery.
        kicks: how often the best angles are disturbed and polished again; by default for a second or two, 100
            at most.
        finish: L-BFGS iterations at the end, at most.
        order: coordinate at each position of the butterfly, shape (n,); see `core.order`;
            "learn" is its `learned_order`; None is the natural order.
        seed: of the random starts.
        callback: called as callback(stage, K, best objective so far); may raise `Stop` or
            KeyboardInterrupt, and the best so far is returned.

    Returns:
        The wiring (a `Butterfly`; a `Pairs` if ``order`` is not the natural one), angles, eigenvalues, and
        the history of the best objective.

    >>> fit_butterfly(np.array([[2.0, 1.0], [1.0, 2.0]])).wiring
    Butterfly(n=2, depth=1): 1 layers, 1 rotations
    """
    objective = Objective(H, target)
    order = learned_order(H) if isinstance(order, str) and order == "learn" else _checked(order, len(H))
    wiring = permuted(Butterfly(objective.n, depth, reverse=reverse), order)
    pairs = wiring.flat_pairs()
    generator = np.random.default_rng(seed)
    recovered = _recovered(objective, depth, reverse, order)
    starts = round(STARTS * min(1.0, EFFORTS[effort])) if starts is None else starts
    begin = _starts(objective, wiring, pairs, recovered, starts, generator)
    kicks = _kicks(objective.n, len(pairs), effort) if kicks is None else kicks
    angles, history = search_angles(objective, pairs, begin, kicks, generator, callback, finish)
    return DenseFit(wiring, angles, objective.eigenvalues(pairs, angles), history)


def search_angles(
    objective: Smooth,
    pairs: np.ndarray,
    starts: Iterator[np.ndarray],
    kicks: int,
    generator: np.random.Generator,
    callback: Callback | None,
    finish: int = FINISH,
) -> tuple[np.ndarray, list[tuple[str, int, float]]]:
    """The best angles (K,) on fixed pairs (K, 2) and their history: polish each start, kick the best, polish.

    Args:
        objective: what to minimise.
        pairs: who meets whom, Q₁ first.
        starts: angles to start from; no rotation at all is one in any case.
        kicks, callback, finish: as in `fit_butterfly`.
        generator: of the kicks.
    """
    best = (np.zeros(len(pairs)), objective.of_residual(objective.residual(pairs[:0], np.zeros(0))))
    history = [("start", len(pairs), best[1])]

    def keep(stage: str, angles: np.ndarray, value: float) -> None:
        nonlocal best
        if value < best[1]:
            best = (angles, value)
            history.append((stage, len(pairs), value))
        if callback is not None:
            callback(stage, len(pairs), best[1])

    def polish(stage: str, start: np.ndarray, iterations: int, tolerance: float) -> tuple[np.ndarray, float]:
        return objective.polish(
            pairs, start, iterations, tolerance, lambda x, f: keep(stage, x, f), scaled=stage == "polish"
        )

    try:
        for angles in starts:
            keep("scout", *polish("scout", angles, SCOUT, 1e-6))
        angles, value = best
        for index in range(kicks):
            kicked = generator.random(len(pairs)) < SHARE_KICKED
            start = angles + kicked * KICK * generator.standard_normal(len(pairs))
            new, new_value = polish("kick", start, SCOUT, 1e-5)
            keep("kick", new, new_value)
            if new_value < value + HEAT * (1.0 - index / kicks) * abs(value):
                angles, value = new, new_value
        keep("polish", *polish("polish", best[0], finish, 1e-8))
    except (Stop, KeyboardInterrupt):
        pass
    return best[0], history


def align_butterfly(
    R: np.ndarray,
    wiring: Wiring,
    *,
    effort: str = "default",
    starts: int | None = None,
    kicks: int | None = None,
    finish: int = FINISH,
    seed: int = 0,
    callback: Callback | None = None,
) -> AlignedFit:
    """Fit R ≈ Q with Q on a fixed wiring: exact updates layer by layer, then L-BFGS on all angles.

    Args:
        R: orthogonal, shape (n, n), any n.
        wiring: on n coordinates; a `Butterfly` of any depth, or `Pairs`.
        effort, kicks, finish: as in `fit_butterfly`.
        starts: random starts, beside no rotation and, for a butterfly of depth 1, what recovery reads off;
            by default 8, or as many as take a second or two.
        seed: of starts and kicks.
        callback: called as callback(stage, K, best objective so far); may raise `Stop` or
            KeyboardInterrupt, and the best so far is returned.

    Returns:
        Wiring, angles (K,) and the history of ‖R − Q‖²_F / n.

    >>> align_butterfly(np.array([[0.6, -0.8], [0.8, 0.6]]), Butterfly(2)).angles.round(6).tolist()
    [0.927295]
    """
    objective, pairs = Alignment(R), wiring.flat_pairs()
    generator = np.random.default_rng(seed)
    if starts is None:
        one = 10.0 * objective.n * max(len(pairs), 1) * (SWEEPS + SCOUT)
        starts = int(min(STARTS, WORK / one) * min(1.0, EFFORTS[effort]))
    begin = _aligned_starts(objective.R, wiring, pairs, starts, generator)
    kicks = _kicks(objective.n, len(pairs), effort) if kicks is None else kicks
    return AlignedFit(wiring, *search_angles(objective, pairs, begin, kicks, generator, callback, finish))


def _kicks(n: int, n_rotations: int, effort: str) -> int:
    """How many kicks `WORK` pays for, 100 at most, and more or fewer with another effort."""
    return int(EFFORTS[effort] * min(100, WORK / (14.0 * n * max(n_rotations, 1) * SCOUT)))


def _checked(order: Any, n: int) -> np.ndarray | None:
    """An order of n coordinates, or None."""
    if order is None:
        return None
    found = np.asarray(order)
    if (
        found.shape != (n,)
        or found.dtype.kind not in "iu"
        or not np.array_equal(np.sort(found), np.arange(n))
    ):
        expected = f"None, 'learn' or each of 0 … {n - 1} once"
        raise ArgumentError("order", expected, repr(order)[:60], "try 'learn'")
    return found.astype(np.int64)


def _recovered(
    objective: Objective, depth: int, reverse: bool, order: np.ndarray | None
) -> np.ndarray | None:  # shape: (K,)
    """Angles as recovery would read them off, if it knows this wiring."""
    n = objective.n
    if objective.target != MATRIX or depth != 1 or (reverse and n & (n - 1)):
        return None
    at = np.arange(n) if order is None else np.asarray(order)
    fit = recover_symmetric(objective.H[np.ix_(at, at)], reverse=reverse, give_up=np.inf, polish=0)
    return None if fit is None else fit.angles


def _starts(
    objective: Objective,
    wiring: Wiring,
    pairs: np.ndarray,
    recovered: np.ndarray | None,
    count: int,
    generator: np.random.Generator,
) -> Iterator[np.ndarray]:
    """Angles to start from: recovered, Jacobi layer by layer, then random ones."""
    if recovered is not None:
        yield recovered
    A, greedy = objective.H, np.zeros(len(pairs))
    for lo, hi in zip(wiring.offsets[:-1], wiring.offsets[1:], strict=True):
        greedy[lo:hi] = jacobi_angles(A, pairs[lo:hi])
        A = conjugate(A, pairs[lo:hi], greedy[lo:hi])
    yield greedy
    for _ in range(count):
        yield generator.uniform(-np.pi, np.pi, len(pairs))


def _aligned_starts(
    R: np.ndarray, wiring: Wiring, pairs: np.ndarray, count: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """Angles to start from, swept: recovered, none, then random ones."""
    if isinstance(wiring, Butterfly) and wiring.depth == 1:
        if wiring.reverse:  # Rᵀ = Q diag(±1), but for its signs
            yield -recover_rotation(R.T).angles[wiring.transpose_order]
        else:
            yield recover_rotation(R).angles
    yield _swept(R, wiring, pairs, np.zeros(len(pairs)))
    for _ in range(count):
        yield _swept(R, wiring, pairs, generator.uniform(-np.pi, np.pi, len(pairs)))


def _swept(R: np.ndarray, wiring: Wiring, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
    before, offsets = -np.inf, wiring.offsets.copy()
    for _ in range(SWEEPS):
        trace = sweep_layers(R, pairs, offsets, angles)
        if trace - before < SETTLED * abs(trace):
            break
        before = trace
    return angles
