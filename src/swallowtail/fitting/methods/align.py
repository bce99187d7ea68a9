"""Rotations from the entries of R: the Q of a wiring, or of pairs chosen from R, that maximises tr(QᵀR).

As with symmetric matrices the wiring is the bottleneck: at n = 64 with 192 rotations a butterfly ends at
67° from a Haar R whatever the optimiser, pairs chosen from R at 49°.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.objectives import Alignment
from swallowtail.fitting.core.product import Callback, flat_pairs, layered
from swallowtail.fitting.core.trace import sweep_layers
from swallowtail.fitting.methods.butterfly import search_angles
from swallowtail.fitting.methods.pairs import POLISH, State, search_pairs
from swallowtail.fitting.methods.recovery import recover_rotation
from swallowtail.wiring import Butterfly, Wiring

STARTS, SWEEPS = 8, 30  # random starts, and sweeps of exact layer updates before L-BFGS takes over
SETTLED = 1e-4  # sweeps stop when one gains less than this fraction
CYCLES = 400  # at most; half a second at n = 64
WORK = 2e10  # multiply-adds spent on random starts, on kicks and on cycles, each: a second or two


class AlignedFit(NamedTuple):
    """R ≈ Q, and how the fit got there."""

    wiring: Wiring
    angles: np.ndarray  # shape: (K,)
    history: list[tuple[str, int, float]]  # (stage, K, ‖R − Q‖²_F / n), best so far first to last


def align_wiring(
    R: np.ndarray,
    wiring: Wiring,
    *,
    starts: int | None = None,
    kicks: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> AlignedFit:
    """Fit R ≈ Q with Q on a fixed wiring: exact updates layer by layer, then L-BFGS on all angles.

    Args:
        R: orthogonal, shape (n, n), any n.
        wiring: on n coordinates; a `Butterfly` of any depth, or `Pairs`.
        starts: random starts, beside no rotation and, for a butterfly of depth 1, what recovery reads off;
            None is 8, or as many as take a second or two.
        kicks: how often the best angles are disturbed and polished again; None spends a second or two, 100
            at most.
        seed: of starts and kicks.
        callback: called as callback(stage, K, best objective so far); may raise `Stop` or
            KeyboardInterrupt, and the best so far is returned.

    Returns:
        Wiring, angles (K,) and the history of ‖R − Q‖²_F / n.

    >>> align_wiring(np.array([[0.6, -0.8], [0.8, 0.6]]), Butterfly(2)).angles.round(6).tolist()
    [0.927295]
    """
    objective, pairs = Alignment(R), flat_pairs(wiring)
    generator = np.random.default_rng(seed)
    if starts is None:
        one = 10.0 * objective.n * max(len(pairs), 1) * (SWEEPS + 60)
        starts = int(min(STARTS, WORK / one))
    begin = _starts(objective.R, wiring, pairs, starts, generator)
    return AlignedFit(wiring, *search_angles(objective, pairs, begin, kicks, generator, callback))


def align_pairs(
    R: np.ndarray,
    n_rotations: int,
    *,
    cycles: int | None = None,
    target_error: float | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
) -> AlignedFit:
    """Fit R ≈ Q with ``n_rotations`` rotations on pairs chosen from R.

    Greedy growth, polish, prune-and-regrow as in `jacobi.fit_pairs`; here rotations can be added anywhere in
    the product, not at its end alone. With n(n − 1)/2 rotations any rotation is met exactly.

    Args:
        R: orthogonal with determinant +1, shape (n, n).
        n_rotations: the budget K; fewer are used when R is met before that.
        cycles: prune-and-regrow cycles; None spends a second or two, 400 at most.
        target_error: stop at this relative error ‖R − Q‖_F / √n with as few rotations as it takes.
        seed: of the cycles' choices.
        callback: as in `align_wiring`.
        save, resume: as in `jacobi.search_pairs`.

    Returns:
        Wiring, angles (K,) and the history of ‖R − Q‖²_F / n.
    """
    objective = Alignment(R)
    if cycles is None:
        cycles = round(min(CYCLES, WORK / (7.0 * objective.n * max(n_rotations, 1) * 6 * POLISH)))
    goal = -np.inf if target_error is None else target_error**2
    search = search_pairs(
        objective,
        n_rotations,
        cycles=cycles,
        goal=goal,
        seed=seed,
        callback=callback,
        save=save,
        resume=resume,
    )
    pairs, angles, history = search.pairs, search.angles, search.history
    if search.value > max(goal, objective.rounding) and n_rotations >= objective.n * (objective.n - 1) // 2:
        pairs, angles = givens_qr(objective.R)
        value = objective.of_residual(objective.residual(pairs, angles))
        history = [*history, ("eliminate", len(angles), value)]
    return AlignedFit(*layered(objective.n, pairs, angles), history)


def givens_qr(R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A rotation R (n, n) as n(n − 1)/2 Givens rotations, Q₁ first: column by column its entries are zeroed.

    Returns:
        pairs (K, 2) and angles (K,).
    """
    M, n = np.array(R, dtype=np.float64), len(R)
    pairs, angles = [], []
    for i in range(n - 1):
        for j in range(i + 1, n):
            theta = float(np.arctan2(M[j, i], M[i, i]))
            c, s = np.cos(theta), np.sin(theta)
            M[[i, j]] = c * M[i] + s * M[j], c * M[j] - s * M[i]
            pairs.append((i, j))
            angles.append(theta)
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(angles)


def _starts(
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
    before = -np.inf
    for _ in range(SWEEPS):
        trace = sweep_layers(R, pairs, wiring.offsets, angles)
        if trace - before < SETTLED * abs(trace):
            break
        before = trace
    return angles
