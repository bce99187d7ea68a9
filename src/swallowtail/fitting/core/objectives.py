"""What a fit minimises, and the polish that minimises it over all angles together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.fitting.core.curvature import derivatives, steps
from swallowtail.fitting.core.groups import together
from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.lbfgs import MEMORY, lbfgs
from swallowtail.fitting.core.matching import grow_matching, least_weight, sampled
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.product import (
    FLOOR,
    LIKELIHOOD,
    MATRIX,
    ROTATION,
    TARGETS,
    conjugate,
    rotate_rows,
    tile,
)
from swallowtail.fitting.core.removal import removal_losses

WORK_BETWEEN_REPORTS = 5e7  # multiply-adds, about 10 ms: how long an interruption may wait
NEWTON_SHARE = 100  # layers of Newton rotations per cycle, times n²/K: O(n³) each, about as long as a polish
BEFORE_ALL, BEHIND_ALL = 0.5, 0.1  # how often new rotations stand there
FEW = 1.5  # rotations per coordinate
EXACT = 1e-15  # a squared relative error that is rounding


Report = Callable[[], None]


class Searched(ABC):
    """A function of the angles of Q that `core.search` makes small: all that it asks of one."""

    n: int
    rounding: float  # a value that is rounding: no search goes on below it
    starts: tuple[str, ...]  # names of the ways to `begin`, the best first

    @property
    def few(self) -> int:
        """So many rotations may be better when grown greedily."""
        return int(FEW * self.n)

    @abstractmethod
    def residual(self, pairs: np.ndarray, angles: np.ndarray) -> Any:
        """What Q leaves of the matrix, QᵀHQ or QᵀR, as `of_residual` and `grow` take it."""

    @abstractmethod
    def of_residual(self, A: Any) -> float:
        """The objective when that is A."""

    @abstractmethod
    def grow(self, A: Any, count: int, threshold: float, enough: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Choose ``count`` rotations on the residual A, which becomes the new one; pairs and angles.

        With ``enough`` it may return behind a layer that has brought so many.
        """

    @abstractmethod
    def begin(self, A: Any, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        """As `grow`, in layers that reach as many coordinates as they can."""

    @abstractmethod
    def in_front(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        """At most ``count`` rotations to put in front of all others, where they promise something; pairs and angles.

        ``report`` is called every now and then; it may raise to interrupt.
        """

    @abstractmethod
    def behind(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """``count`` rotations chosen greedily behind all others; pairs and angles."""

    @abstractmethod
    def regrow(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The product with ``count`` rotations more, where they can help; pairs and angles.

        Without a ``generator`` they stand before all others.
        """

    @abstractmethod
    def removal_losses(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (K,)
        """How much the objective rises if a rotation is taken out, for each."""

    @abstractmethod
    def polish(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        max_iterations: int = 200,
        tolerance: float = 1e-6,
        report: Callable[[np.ndarray, float], None] | None = None,
    ) -> tuple[np.ndarray, float]:
        """Improve all angles together by L-BFGS.

        Args:
            pairs: shape (K, 2), Q₁ first.
            angles: where to start, shape (K,).
            max_iterations: each costs one or two O(nK) gradients.
            tolerance: stop when an iteration gains less than this fraction of the starting objective
                (of 1, for the likelihood).
            report: called with (angles, objective) every few iterations; may raise to interrupt.

        Returns:
            The angles and their objective, never worse than the start.
        """


class Smooth(Searched):
    """One whose gradient the compiled functions of this folder find. Abstract: `Objective`, `Alignment`."""

    tiles: np.ndarray  # `tile` of the matrix
    target: int  # MATRIX, LIKELIHOOD or ROTATION
    floor: float  # smallest variance the likelihood sees
    unit: float  # what the compiled sum is divided by
    constant: float  # what it is taken from

    def __call__(self, pairs: np.ndarray, angles: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient, shape (K,)."""
        value, slopes, _ = derivatives(self.tiles, pairs, angles, self.target, self.floor)
        return self.constant - value / self.unit, slopes / -self.unit

    def polish(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        max_iterations: int = 200,
        tolerance: float = 1e-6,
        report: Callable[[np.ndarray, float], None] | None = None,
        scaled: bool = True,
    ) -> tuple[np.ndarray, float]:
        """As `Searched.polish`.

        Args:
            scaled: scale the steps by the curvature of each angle. That takes a third of the iterations to the nearest
                minimum; from far away, as a kicked butterfly is, it ends in worse ones.
        """
        x = np.array(angles, dtype=np.float64)
        if len(x) == 0:
            return x, self(pairs, x)[0]
        value, slopes, bends = derivatives(self.tiles, pairs, x, self.target, self.floor)
        f, g = self.constant - value / self.unit, slopes / -self.unit
        scale = steps(bends / self.unit) if scaled else np.ones(len(x))
        gain = tolerance * (1.0 if self.target == LIKELIHOOD else abs(f))
        S, Y, rho = np.zeros((MEMORY, len(x))), np.zeros((MEMORY, len(x))), np.zeros(MEMORY)
        count, done, converged = 0, 0, False
        chunk = max(1, int(WORK_BETWEEN_REPORTS / (14 * self.n * len(x))))
        while done < max_iterations and not converged:
            few = min(chunk, max_iterations - done)
            what = (self.target, self.floor, self.unit, True if self.target == ROTATION else None)
            memory = (scale, S, Y, rho, count, few, gain)
            x, f, g, count, converged = lbfgs(self.tiles, pairs, x, f, g, *what, *memory)
            done += few
            if report is not None:
                report(x, f)
        return x, f


def place(n_rotations: int, generator: np.random.Generator | None) -> int:
    """Where to put new rotations: most often before all, where a cycle gains most; seldom behind all."""
    if generator is None:
        return 0
    kind, anywhere = generator.random(), int(generator.integers(n_rotations + 1))
    return 0 if kind < BEFORE_ALL else n_rotations if kind < BEFORE_ALL + BEHIND_ALL else anywhere


class Objective(Smooth):
    """One target on one symmetric matrix.

    "matrix" is the squared relative error ‖H − QDQᵀ‖²_F / ‖H‖²_F, "likelihood" the mean of log dᵢ; D is
    eliminated in both.

    Args:
        H: symmetric, shape (n, n).
        target: "matrix" or "likelihood".
    """

    # Matchings suit kernels and images (up to 40 % less error), layers graphs and random matrices (up to 5 % less).
    starts: tuple[str, ...] = ("matchings", "layers")

    def __init__(self, H: np.ndarray, target: str = "matrix") -> None:
        H = np.ascontiguousarray(H, dtype=np.float64)
        largest = np.abs(H).max(initial=0.0)
        # Squares of entries near 1e±200 leave float64. A power of two changes no bit of a mantissa.
        self.scale = float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0
        self.H, self.n, self.target = H / self.scale, len(H), TARGETS[target]
        self.tiles = tile(self.H)
        self.norm2 = float(np.vdot(self.H, self.H)) or 1.0
        self.floor = FLOOR * max(float(np.trace(self.H)) / self.n, 1e-300)
        self.unit = self.norm2 if self.target == MATRIX else float(self.n)
        self.constant, self.rounding = (1.0, EXACT) if self.target == MATRIX else (0.0, -np.inf)
        # A pair below this changes neither target beyond rounding.
        self._least = 1e-32 * (self.norm2 if self.target == MATRIX else 1.0)

    def residual(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        return conjugate(self.H, pairs, angles) if len(pairs) else self.H.copy()

    def of_residual(self, A: np.ndarray) -> float:
        return self.of_diagonal(np.diagonal(A))

    def grow(
        self, A: np.ndarray, count: int, threshold: float, enough: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        return parallel_jacobi(A, count, threshold, self.target, self.floor, self._least, enough)

    def begin(self, A: np.ndarray, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        if start == "layers":
            return parallel_jacobi(A, count, 0.0, self.target, self.floor, self._least, enough)
        rows = sampled(self.n)
        weights = A[rows]
        if self.target != MATRIX:
            deviation = np.sqrt(np.maximum(np.diagonal(A), self.floor))
            with np.errstate(over="ignore"):  # beside a variance of nothing
                weights = weights / deviation[rows, None] / deviation
        with np.errstate(over="ignore"):
            weights = weights**2
        weights[np.arange(len(rows)), rows] = 0.0
        return grow_matching(A, count, self.target, self.floor, max(self._least, least_weight(weights)))

    def in_front(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.newton(pairs, angles, 0, count, 1, threshold, report=report)

    def behind(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.grow(self.residual(pairs, angles), count, threshold)

    def newton(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        at: int,
        count: int,
        layers: int,
        threshold: float,
        groups: tuple[np.ndarray, np.ndarray, int] | None = None,
        report: Report | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rotations to put in front of number ``at``; with ``groups`` (label, count, size) only inside these."""
        M, B = self.residual(pairs[:at], angles[:at]), np.eye(self.n)
        rotate_rows(B, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
        groups = groups or (*together(self.n), self.n)
        return newton_rotations(M, B, count, layers, threshold, self.target, self.floor, *groups, report)

    def regrow(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        # Anywhere in Q, not at its end alone: worth 0.7° to 2.2° at n = 64.
        at = place(len(pairs), generator)
        if at < len(pairs):
            layers = max(1, int(NEWTON_SHARE * len(pairs) / self.n**2))
            more, by = self.newton(pairs, angles, at, count, layers, threshold)
            pairs = np.concatenate([pairs[:at], more, pairs[at:]])
            angles, count = np.concatenate([angles[:at], by, angles[at:]]), count - len(by)
        if count > 0:
            more, by = self.behind(pairs, angles, count, threshold)
            pairs, angles = np.concatenate([pairs, more]), np.concatenate([angles, by])
        return pairs, angles

    def removal_losses(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        return removal_losses(self.tiles, pairs, angles, self.target, self.floor) / self.unit

    def of_diagonal(self, d: np.ndarray) -> float:
        """The objective when diag(QᵀHQ), in the units of ``self.H``, is d (n,)."""
        if self.target == MATRIX:
            return 1.0 - float(d @ d) / self.norm2
        return float(np.log(np.maximum(d, self.floor)).mean())

    def eigenvalues(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n,)
        """The best D for this Q: diag(QᵀHQ)."""
        return np.diagonal(self.residual(pairs, angles)) * self.scale
