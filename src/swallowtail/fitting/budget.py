"""What a fit may cost: a number of rotations, or an amount of floats, bytes, multiply-adds or time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.methods.hybrid import HybridPlan
from swallowtail.fitting.timing import TimeModel
from swallowtail.wiring import Butterfly

MOST_ROUNDS = 16  # of the default budget, when a target angle decides how many rotations there will be
# Jacobi sweeps of n(n − 1)/2 rotations each. Ten diagonalise any matrix to rounding; growth then ends by itself.
MOST_SWEEPS = 64
UNITS = ("floats", "bytes", "multiply_adds", "time")
# What sentences call them.
NAMES = {"floats": "floats", "bytes": "bytes", "multiply_adds": "multiply-adds", "time": "time"}
# Multiply-adds in Q D Qᵀ x: the CPU's kernel of pairs takes the fast form.
PER_ROTATION = {"cpu": 4, "cuda": 8}


def default_budget(n: int, depth: int = 1) -> int:
    """K = n⌈lg n⌉/2 · depth, the paper's."""
    return (n * (n - 1).bit_length() + 1) // 2 * depth


def largest_budget(n: int) -> int:
    """More rotations than any matrix (n, n) can use: what is asked for beyond it is not set aside."""
    return MOST_SWEEPS * max(1, n * (n - 1) // 2)


class Cost(NamedTuple):
    """What a form costs."""

    floats: int
    bytes: int  # float32 numbers, and indices where the form has them
    multiply_adds: int  # of one product
    # Seconds of a product with as many vectors as the `TimeModel` says; None if it has no model.
    time: float | None

    def of(self, unit: str) -> float:
        """The amount in one of `UNITS`; infinite where it is not known."""
        amount = getattr(self, unit)
        return math.inf if amount is None else amount


def cost_of_multiple(n: int, rank: int, seconds: float | None = None) -> Cost:
    """Of c·I and rank-one terms."""
    floats = rank * (n + 1) + 1
    return Cost(floats, 4 * floats, (2 * rank + 1) * n, seconds)


class Prices(NamedTuple):
    """What the members of the family cost on n coordinates."""

    n: int
    model: TimeModel
    kind: str = "pairs"  # the wiring of chosen rotations, as the `TimeModel` names it

    def rotations(self, n_rotations: int, rank: int = 0) -> Cost:
        """Rotations on chosen pairs, a diagonal and rank-one terms."""
        n, floats = self.n, n_rotations + self.n + rank * (self.n + 1)
        work = PER_ROTATION.get(self.model.device, 8) * n_rotations + (2 * rank + 1) * n
        seconds = self.model.seconds(n, self.kind, n_rotations, rank)
        return Cost(floats, 4 * floats + 2 * index_bytes(n) * n_rotations, work, seconds)

    def butterfly(self, depth: int) -> Cost:
        """A butterfly and its diagonal: no indices."""
        n, K = self.n, Butterfly(self.n, depth).n_rotations
        seconds = self.model.seconds(n, "butterfly", K)
        return Cost(K + n, 4 * (K + n), 4 * K + n, seconds)

    def multiple(self, rank: int) -> Cost:
        """c·I and rank-one terms."""
        return cost_of_multiple(self.n, rank, self.model.seconds(self.n, "", 0, rank))

    def dense(self) -> Cost:
        """All n² numbers."""
        return Cost(self.n**2, 4 * self.n**2, self.n**2, self.model.at("dense", self.n))

    def plan(self, unit: str, amount: float) -> HybridPlan:
        """What an amount buys; at least a diagonal."""
        n, most = self.n, largest_budget(self.n)
        rotations = []
        for r in range(n + 1):
            K = most_affordable(lambda k, r=r: self.rotations(k, r).of(unit) <= amount, most)
            if K < 0:
                break
            rotations.append(K)
        multiple = most_affordable(lambda r: self.multiple(r).of(unit) <= amount, n)
        return HybridPlan(max(0, multiple), tuple(rotations))


class Budget(NamedTuple):
    """An amount of something; None is what the default number of rotations costs."""

    unit: str
    amount: float | None = None

    @classmethod
    def parse(cls, budget: Any) -> Budget:
        """From what `fit_symmetric` takes: a unit, or a unit and an amount."""
        named = isinstance(budget, (tuple, list)) and len(budget) == 2
        unit, amount = budget if named else (budget, None)
        if not isinstance(unit, str):
            expected = f"one of {', '.join(map(repr, UNITS))}, or a tuple of it and an amount"
            amount = isinstance(budget, (int, float)) and not isinstance(budget, bool) and budget > 0
            example = f"('floats', {budget})" if amount else "'floats'"
            raise ArgumentError("budget", expected, repr(budget), f"try `budget={example}`")
        checks.choice("budget", unit, UNITS)
        if named:
            amount = checks.number("budget", amount, above=0)
            if unit != "time" and amount != int(amount):
                raise ArgumentError(
                    "budget", f"a whole number of {NAMES[unit]}", amount, f"try {int(amount)}"
                )
        return cls(unit, amount)

    def plan(self, prices: Prices, n_rotations: int) -> tuple[float, HybridPlan]:
        """The amount and what it buys; ``n_rotations`` are those whose cost is the default amount."""
        least = prices.rotations(0).of(self.unit)
        amount = (
            max(prices.rotations(n_rotations).of(self.unit), least) if self.amount is None else self.amount
        )
        if amount < least:
            what = f"a diagonal of n = {prices.n} numbers"
            if self.unit == "time":
                raise ArgumentError(
                    "budget",
                    f"at least {quantity('time', least)}, which a product with {what} takes ({prices.model.source})",
                    quantity("time", amount),
                    f"try `budget=('time', {least * 1.001:.3g})` or more",
                )
            expected = f"at least {least:.0f} {NAMES[self.unit]}, those of {what}"
            hint = f"try `budget=({self.unit!r}, {least:.0f})` or more"
            raise ArgumentError("budget", expected, f"{amount:.0f}", hint)
        return amount, prices.plan(self.unit, amount)


def index_bytes(n: int) -> int:
    """Of one coordinate's number."""
    return 2 if n <= 65536 else 4


def quantity(unit: str, amount: float) -> str:
    """An amount for a sentence.

    >>> quantity("floats", 4704), quantity("time", 0.000312)
    ('4704', '312 µs')
    """
    if unit != "time":
        return f"{amount:.0f}"
    factor, name = next(
        (f, name) for f, name in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if amount * f >= 1 or f == 1e6
    )
    return f"{amount * factor:.3g} {name}"


def most_affordable(affordable: Callable[..., bool], limit: int) -> int:
    """The largest whole number up to ``limit`` that is affordable; −1 if 0 is not. What is affordable has no gaps."""
    if not affordable(0):
        return -1
    low, high = 0, 1
    while high <= limit and affordable(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low
