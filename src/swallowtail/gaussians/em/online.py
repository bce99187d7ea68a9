"""EM from statistics: stepwise over a stream of rows, or over rows that lie in pieces on many machines."""

from __future__ import annotations

from collections.abc import Callable

from swallowtail.gaussians.em.components import Components
from swallowtail.gaussians.mixture_statistics import MixtureStatistics

FORGETTING = 0.6  # step t of online EM weighs (t + 2)^−0.6; any exponent in (½, 1] converges
ROOM = 2**25  # numbers in k matrices (n, n) that are kept for choosing rotations again
Reduce = Callable[
    [bool], MixtureStatistics
]  # (with scatters?) ↦ statistics of all rows, under the mixture as it is


def begin(components: Components, reduce: Reduce) -> MixtureStatistics:
    """Statistics per row of the rows that a mixture was fitted to."""
    k, n = components.means.shape
    found = reduce(k * n * n <= ROOM)
    found.forget(1 / found.n_rows)
    return found


def resume(components: Components) -> MixtureStatistics:
    """Statistics per row of a mixture whose rows are gone: no rotations can be chosen from them."""
    weights = components.weights
    rotated = components.to_basis(components.means)
    return MixtureStatistics(
        weights, components.means.copy(), rotated, components.along * weights[:, None], 0.0, 1.0
    )


def step(components: Components, running: MixtureStatistics, reduce: Reduce, t: int) -> float:
    """Stepwise EM (Cappé & Moulines): step t with new rows, statistics kept per row. Their mean log-density.

    Rotations are chosen again at t = 1, 2, 4, 8 and so on.
    """
    new = reduce(running.scatters is not None)
    mean = new.log_density / new.n_rows
    share = (t + 2) ** -FORGETTING
    new.forget(share / new.n_rows)
    running.forget(1 - share)
    running.merge(new)
    components.maximise_from(running)
    if running.scatters is not None and t & (t - 1) == 0:
        components.choose_rotations_from(running)
    return mean


def merge(
    components: Components, running: MixtureStatistics, other: MixtureStatistics, same_rotations: bool
) -> None:
    """Take in the statistics of a copy of the mixture, per row as well, and rotate again if the copy has."""
    running.merge(other if same_rotations else components.along_axes(other))
    running.forget(1 / running.n_rows)
    components.maximise_from(running)
    if not same_rotations:
        components.choose_rotations_from(running)


def em(components: Components, reduce: Reduce, max_iter: int, tol: float) -> tuple[list[float], bool]:
    """EM by reductions, one per step: the mean log-density before each, and whether it settled.

    When it has settled, rotations are chosen again once, from one reduction that carries k matrices (n, n).
    """
    history: list[float] = []
    refitted = components.means.shape[0] * components.means.shape[1] ** 2 > ROOM
    for _ in range(max_iter):
        found = reduce(False)
        history.append(found.log_density / found.n_rows)
        components.maximise_from(found)
        if len(history) > 1 and abs(history[-1] - history[-2]) < tol:
            if refitted or not components.choose_rotations_from(reduce(True)):
                return history, True
            refitted = True
    return history, False
