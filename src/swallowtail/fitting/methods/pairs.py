"""Pairs chosen from the data: built from behind, polished, then pruned and regrown.

Which coordinates meet matters more than any optimiser. At n = 64 with 192 rotations, choosing them from the
data brings the butterfly's 33°, 35°, 17° (5, 32, 64 large eigenvalues) down to 12°, 23°, 12°. The same holds for
rotations: a butterfly ends at 67° from a Haar R whatever the optimiser, pairs chosen from R at 49°.
`core.stages` has the steps; here is how much work each kind of matrix gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting.core.alignment import Alignment
from swallowtail.fitting.core.build import WORK as BUILDING
from swallowtail.fitting.core.build import BuildPlan
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import MATRIX, layered
from swallowtail.fitting.core.records import AlignedFit, Callback, DenseFit
from swallowtail.fitting.core.search import FINISH, POLISH, State
from swallowtail.fitting.core.stages import search_pairs

WORK = 9.5e6  # n·K·cycles by default: half a second
WORK_ALIGNED = 2.4e7  # the same for a rotation, whose gradient takes half as long
EARLY = 6  # cycles of a short search that put rotations before all others: at n = 400, 3 of them leave 4 % less error
MOST_CYCLES = 400  # of a rotation; half a second at n = 64


class Effort(NamedTuple):
    """How much work a fit is worth."""

    cycles: float  # times as many as by default
    most: float  # cycles times n, unless that is fewer than five
    finish: int  # L-BFGS iterations at the end
    polish: int  # L-BFGS iterations in every step and cycle
    plan: BuildPlan  # of a building

    def of_search(
        self, n: int, steps: int | None = None, finish: int | None = None, work: float = BUILDING
    ) -> dict[str, Any]:
        """Arguments of `core.stages.search_pairs` on n coordinates; ``steps`` and ``finish`` count if given."""
        plan = self.plan.limited(n, work) if steps is None else self.plan.of(steps)
        return {"plan": plan, "polish": self.polish, "finish": self.finish if finish is None else finish}


OTHERS = (BuildPlan(steps=2, starts=1),)  # are tried as well, where there are many cycles
EFFORTS = {
    "quick": Effort(0.2, 1000, 8, 5, BuildPlan(steps=2, starts=1)),
    "default": Effort(1.0, np.inf, FINISH, POLISH, BuildPlan()),
    "best": Effort(8.0, np.inf, 3 * FINISH, POLISH, BuildPlan(steps=12)),
}


def default_cycles(n: int, n_rotations: int, effort: str = "default") -> int:
    """How many cycles `WORK` pays for, and no more than help.

    By default 100 at n = 64, 3 at n = 784, none from n ≈ 2000 on.
    """
    affordable = min(max(100, n_rotations // 2), WORK / (n * max(n_rotations, 1)))
    return round(min(EFFORTS[effort].cycles * affordable, max(5, EFFORTS[effort].most / n)))


def fit_pairs(
    H: np.ndarray,
    n_rotations: int,
    *,
    target: str = "matrix",
    effort: str = "default",
    steps: int | None = None,
    cycles: int | None = None,
    finish: int | None = None,
    target_error: float | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
) -> DenseFit:
    """Fit H ≈ Q D Qᵀ with ``n_rotations`` rotations on pairs chosen from H.

    Args:
        H: symmetric, shape (n, n).
        n_rotations: the budget K; fewer are used when H is diagonal before that.
        target: "matrix" minimises ‖H − QDQᵀ‖_F, "likelihood" minimises Σ log diag(QᵀHQ) (H a covariance).
            The latter fits noise too: with 3n rotations and 2n to 4n samples it lost on held-out data in
            about half the trials.
        effort: "quick", "default" or "best": how many steps, cycles and iterations there are unless you say.
        steps: in which rotations are added and polished. 0: they grow greedily, which is fast.
        cycles: prune-and-regrow cycles.
        finish: L-BFGS iterations at the end. Without steps and cycles, a fit of n = 64 takes less than a millisecond.
        target_error: stop at this relative error ‖H − QDQᵀ‖_F / ‖H‖_F with as few rotations as it takes
            (target "matrix" only).
        seed: of the cycles' choices.
        callback: called as callback(stage, K, best objective so far), stages "grow", "polish", "trial",
            "cycle", "shrink"; may raise `Stop` or KeyboardInterrupt, and the best so far is returned.
        save, resume: as in `core.stages.search_pairs`.

    Returns:
        The wiring (a `Pairs`), angles (K,), eigenvalues (n,), and the history of the best objective: the
        squared relative error, or the mean of log d.

    >>> fit_pairs(np.array([[2.0, 1.0], [1.0, 2.0]]), 1).eigenvalues.round(12).tolist()
    [3.0, 1.0]
    """
    objective = Objective(H, target)
    goal = -np.inf if target_error is None or objective.target != MATRIX else target_error**2
    search = search_pairs(
        objective,
        n_rotations,
        cycles=default_cycles(objective.n, n_rotations, effort) if cycles is None else cycles,
        goal=goal,
        seed=seed,
        callback=callback,
        save=save,
        resume=resume,
        early=EARLY,
        others=OTHERS if steps is None else (),
        **EFFORTS[effort].of_search(objective.n, steps, finish),
    )
    wiring, angles = layered(objective.n, search.pairs, search.angles)
    return DenseFit(wiring, angles, objective.eigenvalues(search.pairs, search.angles), search.history)


def align_pairs(
    R: np.ndarray,
    n_rotations: int,
    *,
    effort: str = "default",
    cycles: int | None = None,
    target_error: float | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
) -> AlignedFit:
    """Fit R ≈ Q with ``n_rotations`` rotations on pairs chosen from R.

    Built, polished, pruned and regrown as in `fit_pairs`. With n(n − 1)/2 rotations any rotation is met exactly.

    Args:
        R: orthogonal with determinant +1, shape (n, n).
        n_rotations: the budget K; fewer are used when R is met before that.
        effort: as in `fit_pairs`.
        cycles: prune-and-regrow cycles; by default at most 400.
        target_error: stop at this relative error ‖R − Q‖_F / √n with as few rotations as it takes.
        seed: of the cycles' choices.
        callback: as in `fit_pairs`.
        save, resume: as in `core.stages.search_pairs`.

    Returns:
        Wiring, angles (K,) and the history of ‖R − Q‖²_F / n.
    """
    objective = Alignment(R)
    if cycles is None:
        affordable = min(MOST_CYCLES, WORK_ALIGNED / (objective.n * max(n_rotations, 1)))
        cycles = round(EFFORTS[effort].cycles * affordable)
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
        **EFFORTS[effort].of_search(objective.n),
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
