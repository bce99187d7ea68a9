"""What `core.search` asks of an objective, and where it puts new rotations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.fitting.core.groups import Groups

NEWTON_SHARE = 100  # layers of Newton rotations per cycle, times n²/K: O(n³) each, about as long as a polish
BEFORE_ALL, BEHIND_ALL = 0.5, 0.1  # how often new rotations stand there
FEW = 1.5  # rotations per coordinate

Report = Callable[[], None]


class Searchable(ABC):
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


class Diagonalised(Searchable):
    """One of a symmetric matrix: new rotations may stand anywhere, by what they promise to second order.

    Abstract: `core.objectives.Objective`, the same on a device, and both in groups (`methods.grouped.Confined`).
    """

    @abstractmethod
    def newton(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        at: int,
        count: int,
        layers: int,
        threshold: float,
        groups: Groups | None = None,
        report: Report | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rotations to put in front of number ``at``; with ``groups`` only inside these."""

    def opened(
        self, pairs: np.ndarray, angles: np.ndarray, at: int
    ) -> tuple[np.ndarray, np.ndarray, Groups | None]:
        """The same product in an order in which new rotations may stand at ``at``, and the groups they keep to."""
        return pairs, angles, None

    def in_front(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.newton(pairs, angles, 0, count, 1, threshold, report=report)

    def behind(
        self, pairs: np.ndarray, angles: np.ndarray, count: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.grow(self.residual(pairs, angles), count, threshold)

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
            pairs, angles, groups = self.opened(pairs, angles, at)
            layers = max(1, int(NEWTON_SHARE * len(pairs) / self.n**2))
            more, by = self.newton(pairs, angles, at, count, layers, threshold, groups)
            pairs, angles = inserted(pairs, angles, at, more, by)
            count -= len(by)
        if count > 0:
            pairs, angles = inserted(pairs, angles, len(pairs), *self.behind(pairs, angles, count, threshold))
        return pairs, angles


def place(n_rotations: int, generator: np.random.Generator | None) -> int:
    """Where to put new rotations: most often before all, where a cycle gains most; seldom behind all."""
    if generator is None:
        return 0
    kind, anywhere = generator.random(), int(generator.integers(n_rotations + 1))
    return 0 if kind < BEFORE_ALL else n_rotations if kind < BEFORE_ALL + BEHIND_ALL else anywhere


def inserted(
    pairs: np.ndarray, angles: np.ndarray, at: int, more: np.ndarray, by: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The product with rotations ``more`` by the angles ``by`` in front of number ``at``."""
    return np.concatenate([pairs[:at], more, pairs[at:]]), np.concatenate([angles[:at], by, angles[at:]])
