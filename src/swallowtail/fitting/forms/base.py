"""What the runner asks of the forms of a matrix: their order, one of them, when to stop, and the quality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting.budget import Prices
from swallowtail.fitting.checkpoint import Checkpoint
from swallowtail.fitting.inputs import Problem
from swallowtail.fitting.methods.hybrid import HybridPlan
from swallowtail.fitting.quality import Fitted
from swallowtail.fitting.request import CHOSEN, Request
from swallowtail.fitting.result import Candidate, Quality
from swallowtail.fitting.watch import Watch
from swallowtail.operators import HybridOperator, Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Grouped

SCOUTED = 20  # L-BFGS iterations at the end of a butterfly's first try
LARGEST_BUTTERFLY = 512  # beyond this n, trying a butterfly too takes longer than the pairs, and rarely wins


class Family(NamedTuple):
    """What the user's own budget buys."""

    unit: str
    amount: float
    plan: HybridPlan
    butterfly: int  # the depth of the butterfly that it pays for, without rank-one terms; 0: none


class Job(NamedTuple):
    """A fit under way."""

    request: Request
    problem: Problem
    budget: int  # the most rotations
    watch: Watch
    saved: Checkpoint
    prices: Prices
    family: Family | None = None  # set if the request has a budget


class Forms(ABC):
    """What can be tried on one matrix. Abstract: `SymmetricForms`, `OrthogonalForms`."""

    def __init__(self, job: Job, matrix: np.ndarray) -> None:
        self.job, self.request, self.matrix, self.n = job, job.request, matrix, len(matrix)

    def order(self) -> list[str]:
        """The forms to try."""
        request, family = self.request, self.job.family
        if request.method != "auto":
            return [request.method if request.method != "products" else "pairs"]
        recovery = ["recovery"] if self.may_recover() else []
        if family is not None:
            fixed = request.wiring == "auto" and family.butterfly and 1 < self.n <= LARGEST_BUTTERFLY
            return [*recovery, "hybrid", "butterfly"] if fixed else ["hybrid"]
        if request.wiring in CHOSEN:
            return ["pairs"]
        if request.wiring != "auto":
            return [*recovery, "butterfly"]
        forms = [*recovery, "pairs"]
        fits = Butterfly(self.n, request.depth).n_rotations <= self.job.budget
        slow = request.effort == "quick" or request.target_angle is not None
        if fits and not slow and 1 < self.n <= LARGEST_BUTTERFLY:
            forms.append("butterfly")
        return forms

    def fit(self, name: str, before: list[Candidate]) -> Candidate | None:
        """Fit one form; None if the matrix is not of it."""
        fitters = self.fitters()
        if name in fitters:
            return fitters[name]()
        assert name == "butterfly", name
        if before and self.request.wiring == "auto":
            # One cheap start shows whether the fixed wiring can come near the chosen pairs.
            scout = self.butterfly(starts=0, kicks=0, finish=SCOUTED)
            if not self.is_promising(scout.objective, min(c.objective for c in before)):
                return scout
        return self.butterfly(**self.request.options)

    @abstractmethod
    def fitters(self) -> dict[str, Callable[[], Candidate | None]]:
        """What fits each form but the butterfly."""

    @abstractmethod
    def butterfly(self, **options: Any) -> Candidate:
        """Fit a butterfly."""

    @abstractmethod
    def may_recover(self) -> bool:
        """Whether the matrix may be a butterfly that can be read off."""

    @abstractmethod
    def is_enough(self, name: str, candidate: Candidate) -> bool:
        """Whether no other form needs to be tried."""

    @abstractmethod
    def is_promising(self, scout: float, best: float) -> bool:
        """Whether a butterfly with this objective at first is worth more work."""

    def best(self, candidates: list[Candidate]) -> Candidate:
        """The form to return."""
        return min(candidates, key=lambda candidate: candidate.objective)

    @abstractmethod
    def quality(self, best: Candidate, others: dict[str, Any]) -> tuple[Quality, str]:
        """How good the best form is, and "exact" or "converged"."""

    def _fitted(self, best: Candidate, others: dict[str, Any]) -> Fitted:
        watch, quick = self.job.watch, self.request.effort == "quick"
        seed = self.request.seed + 1
        return Fitted(best.operator, others, seed, bool(watch.status), watch.stop_if_late, quick)


def in_groups(operator: Any) -> Any:
    """The same operator, its rotation in rounds of groups."""
    if isinstance(operator, HybridOperator):
        return HybridOperator(in_groups(operator.symmetric), operator.basis, operator.weights)
    if isinstance(operator, Rotation):
        return operator if isinstance(operator.wiring, Grouped) else operator.grouped()
    rotation = in_groups(operator.rotation)
    if isinstance(operator, SignedRotation):
        return SignedRotation(rotation, operator.signs)
    return SymmetricOperator(rotation, operator.eigenvalues)
