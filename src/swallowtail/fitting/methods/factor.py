"""Fitting A = c·I + Z diag(w) Zᵀ without ever holding n² numbers: all work is on rows of Z (n, r).

A rotation of coordinates i and j rotates two rows of Z, O(r). As a_ij = Σ_q w_q z_iq z_jq, a pair worth
rotating is two long rows that point the same way. Looking for the largest of all n² entries is slow, and greed
from the start is not even good: the sums it builds soon meet everybody and eat the whole budget. Instead:

1. Local. Cut the directions of the rows into clusters (recursive bisection), and in each spend a share of the
   budget by dense truncated Jacobi on its small Gram matrix. What neighbours share ends up in a few rows.
2. Global. Visit the rows that can still hold an entry of weight a_ij² ≥ t, the longest rows first, then clusters
   of the others, each together with the longest; halve t and go on until the budget is spent.
3. Polish. L-BFGS on all angles, O(rK) per gradient.

With e = diag(QᵀAQ) − c the squared error is ‖Z diag(w) Zᵀ‖²_F − Σ eᵢ²: c takes no part in the choice of Q.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy

from swallowtail.fitting.core.factor import Factor, value_and_gradient, visit_blocks
from swallowtail.fitting.core.product import layered
from swallowtail.fitting.core.records import Callback, DenseFit, Stop

CLUSTER, HUBS, TOP = 32, 64, 256  # rows of a cluster; the longest rows, which join each; those visited alone
SHARES = (0.15, 0.3, 0.55)  # of the budget for the local stage; the best outcome is kept
VISIT = 8  # at most this many rotations per row in one visit of a block
HALVINGS = 60  # of the weight t: 2⁻⁶⁰ is below the rounding of a squared error
POLISH, TOLERANCE, CORRECTIONS = 400, 1e-6, 12  # L-BFGS iterations, relative gain to stop at, memory
EXACT = 1e-26  # a squared relative error that is rounding
PULSE = 0.1  # seconds between two calls of the callback inside a long step, at least
CHUNK = 256  # blocks visited between two looks at the clock


def _clusters(
    directions: np.ndarray, rows: np.ndarray, generator: np.random.Generator, pulse: Callable[[], None]
) -> list[np.ndarray]:
    """Bisect ``rows`` until at most CLUSTER are left together: at the median along a direction of large spread.

    It is drawn among the three leading ones: clusters then differ from stage to stage, and two neighbours that
    a cut has parted will meet in another.
    """
    done, waiting = [], [rows]
    while waiting:
        pulse()
        part = waiting.pop()
        if len(part) <= CLUSTER:
            done.append(part)
            continue
        F = directions[part] - directions[part].mean(0)
        spread, V = np.linalg.eigh(F.T @ F)
        lead = min(3, len(spread))
        mix = np.sqrt(np.maximum(spread[-lead:], 0.0)) * generator.standard_normal(lead)
        half = len(part) // 2
        order = np.argpartition(F @ (V[:, -lead:] @ mix), half)
        waiting += [part[order[:half]], part[order[half:]]]
    return done


def _directions(Z: np.ndarray, w: np.ndarray) -> np.ndarray:  # shape: (n, r)
    """The rows of Z diag(√|w|), of length one; z and −z serve alike, so all look to the same side."""
    F = Z * np.sqrt(np.abs(w))
    F /= np.maximum(np.sqrt((F * F).sum(1, keepdims=True)), 1e-150)
    side = np.linalg.eigh(F.T @ F)[1][:, -1]
    return F * np.where(F @ side < 0.0, -1.0, 1.0)[:, None]


class _Growth:
    """Rotations chosen on the rows of Z, up to a budget. ``pulse`` is called often; it may raise to end a step."""

    def __init__(self, factor: Factor, n_rotations: int, seed: int, pulse: Callable[[], None]) -> None:
        self.pulse = pulse
        self.Z, self.w = np.array(factor.basis, order="C"), factor.weights
        self.pairs, self.angles, self.used = np.zeros((n_rotations, 2), np.int64), np.zeros(n_rotations), 0
        self.generator = np.random.default_rng(seed)

    def diagonal(self) -> np.ndarray:  # shape: (n,)
        return (self.Z * self.Z) @ self.w

    def local(self, share: float) -> None:
        """Spend ``share`` of the budget inside clusters of parallel rows."""
        n = len(self.Z)
        blocks = _clusters(_directions(self.Z, self.w), np.arange(n), self.generator, self.pulse)
        rate = share * len(self.angles) / n
        self._visit(blocks, blocks[0][:0], 0.0, [int(rate * len(b)) for b in blocks])

    def descend(self, least: float | None) -> float:
        """Rotate what weighs more than ``least`` (None: the most a pair can weigh). Return the next weight."""
        length2 = (self.Z * self.Z) @ np.abs(self.w)
        longest = length2.max()
        if least is None:
            least = longest * longest
        # a_ij² ≤ ‖z_i‖²‖z_j‖² in the |w| norm: the other rows cannot hold such an entry.
        rows = np.nonzero(length2 * longest >= least)[0]
        rows = rows[np.argsort(-length2[rows], kind="stable")]
        self._visit([rows[:TOP]], rows[:0], least)
        if len(rows) > TOP:
            blocks = _clusters(_directions(self.Z, self.w), rows[HUBS:], self.generator, self.pulse)
            self._visit(blocks, rows[:HUBS], least)
        return 0.5 * least

    def _visit(
        self, blocks: list[np.ndarray], hubs: np.ndarray, least: float, limits: list[int] | None = None
    ) -> None:
        limits = limits or [VISIT * (len(hubs) + len(b)) for b in blocks]
        for first in range(0, len(blocks), CHUNK):
            part = blocks[first : first + CHUNK]
            offsets = np.concatenate([[0], np.cumsum([len(b) for b in part])])
            where = (np.concatenate(part), offsets, np.array(limits[first : first + CHUNK], np.int64))
            self.used = visit_blocks(self.Z, self.w, hubs, *where, least, self.pairs, self.angles, self.used)
            self.pulse()


class _Search:
    """The best product of rotations found so far for one factor."""

    def __init__(self, factor: Factor, n_rotations: int, callback: Callback | None) -> None:
        self.factor, self.budget, self.callback = factor, n_rotations, callback
        self._last = time.perf_counter()
        norm2, self.low2 = factor.norms2()
        self.norm2 = norm2 or 1.0
        self.pairs, self.angles = np.zeros((0, 2), np.int64), np.zeros(0)
        self.value = self.of_diagonal((factor.basis**2) @ factor.weights)
        self.history = [("start", 0, self.value)]

    def of_diagonal(self, e: np.ndarray) -> float:
        return max(0.0, (self.low2 - float(e @ e)) / self.norm2)

    def grow(self, share: float, seed: int) -> None:
        """Choose rotations anew, ``share`` of them inside clusters first."""
        if self.value <= EXACT:
            return
        self._tick("grow")
        growth = _Growth(self.factor, self.budget, seed, self._pulse)
        try:
            growth.local(share)
            least, value = None, self.of_diagonal(growth.diagonal())
            for _ in range(HALVINGS):
                if growth.used == self.budget or value <= EXACT:
                    break
                self._tick("grow")
                least = growth.descend(least)
                value = self.of_diagonal(growth.diagonal())
        finally:  # stopped on the way, what has been chosen so far counts
            value = self.of_diagonal(growth.diagonal())
            self._take("grow", growth.pairs[: growth.used], growth.angles[: growth.used], value)
        self._tick("grow")

    def polish(self, iterations: int) -> None:
        """L-BFGS on the angles of the best product."""
        pairs, start = self.pairs, self.value
        if start <= EXACT or not len(pairs):
            return

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            total, gradient, _ = value_and_gradient(self.factor.basis, self.factor.weights, pairs, x)
            value = (self.low2 - total) / self.norm2
            self._take("polish", pairs, x, max(0.0, value))
            self._tick("polish")
            return value / start, gradient * (-1.0 / (self.norm2 * start))

        options = {"maxiter": iterations, "ftol": TOLERANCE, "gtol": 0.0, "maxcor": CORRECTIONS}
        scipy.optimize.minimize(objective, self.angles, jac=True, method="L-BFGS-B", options=options)

    def result(self) -> DenseFit:
        wiring, angles = layered(len(self.factor.basis), self.pairs, self.angles)
        e = value_and_gradient(self.factor.basis, self.factor.weights, self.pairs, self.angles)[2]
        return DenseFit(wiring, angles, self.factor.shift + e, self.history)

    def _take(self, stage: str, pairs: np.ndarray, angles: np.ndarray, value: float) -> None:
        if value < self.value:
            self.pairs, self.angles, self.value = pairs.copy(), angles.copy(), value
            self.history.append((stage, len(angles), value))

    def _pulse(self) -> None:
        """Inside a long step: call the callback if it was not called for a while."""
        if time.perf_counter() - self._last >= PULSE:
            self._tick("grow")

    def _tick(self, stage: str) -> None:
        self._last = time.perf_counter()
        if self.callback is not None:
            self.callback(stage, len(self.angles), self.value)


def fit_factor(
    factor: Factor,
    n_rotations: int,
    *,
    iterations: int = POLISH,
    seed: int = 0,
    callback: Callback | None = None,
) -> DenseFit:
    """Fit c·I + Z diag(w) Zᵀ ≈ Q D Qᵀ with ``n_rotations`` rotations on pairs chosen from Z.

    Args:
        factor: the matrix; O(nr) numbers.
        n_rotations: the budget K; fewer are used when the matrix is diagonal before that.
        iterations: of the polish; each costs one or two O(rK) gradients.
        seed: of the cuts between clusters.
        callback: called as callback(stage, K, best objective so far), stages "grow" and "polish"; may raise
            `Stop` or KeyboardInterrupt, and the best so far is returned.

    Returns:
        The wiring (a `Pairs`), angles (K,), eigenvalues (n,) and the history of the squared relative error.

    >>> fit = fit_factor(Factor(1.0, np.array([[1.0], [1.0]]), np.array([1.0])), 1)
    >>> sorted(fit.eigenvalues.round(12).tolist())
    [1.0, 3.0]
    """
    factor, exponent = factor.near_one()
    search = _Search(factor, n_rotations, callback)
    try:
        for share in SHARES if n_rotations else ():
            search.grow(share, seed)
        search.polish(iterations)
    except (Stop, KeyboardInterrupt):
        pass
    fit = search.result()
    return fit._replace(eigenvalues=np.ldexp(fit.eigenvalues, exponent))
