"""H ≈ Q D Qᵀ in every form: recovered, on pairs, on a butterfly, with rank-one terms."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.records import DenseFit, Stop
from swallowtail.fitting.forms.base import Forms, Job
from swallowtail.fitting.functions import SpectralFunction
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.fitting.methods.grouped import fit_grouped
from swallowtail.fitting.methods.hybrid import HybridFit, HybridPlan, fit_hybrid
from swallowtail.fitting.methods.low_rank import factor_analysis, gaussian_loss, probabilistic_pca
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.methods.recovery import recover_symmetric
from swallowtail.fitting.quality import EXACT, FEWER, HURRIED, of_symmetric
from swallowtail.fitting.request import OPTIONS
from swallowtail.fitting.result import Candidate, Quality
from swallowtail.fitting.rivals import Judged, Measure, cost_of, likelihood_score, n_probes
from swallowtail.metrics import error_angle
from swallowtail.operators import HybridOperator, Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Wiring

# Members of the family with least error, whose angles are compared, beside those without rotations.
CONTENDERS = 3
TRIES = 6  # fits to reach a target angle; one or two do
BELOW_ZERO = 1e-2  # of the largest entry: as far as half precision may take an eigenvalue of a covariance


class SymmetricForms(Forms):
    """H ≈ Q D Qᵀ, or f(H) where that is the target, as H⁻¹ is for "inverse"."""

    def __init__(self, job: Job) -> None:
        H, target = job.problem.dense, job.request.target
        assert H is not None
        if target == "likelihood":
            _check_covariance(H)
        self.function = job.request.function
        super().__init__(job, H if self.function is None else _function(job, self.function, H))
        self.target = "likelihood" if target == "likelihood" else "matrix"

    def fitters(self) -> dict[str, Callable[[], Candidate | None]]:
        return {
            "recovery": self.recover,
            "pairs": self.pairs,
            "grouped": self.grouped,
            "hybrid": self.hybrid,
        }

    def may_recover(self) -> bool:
        request, wiring = self.request, self.request.fixed_wiring(self.n)
        if not isinstance(wiring, Butterfly) or wiring.depth != 1 or self.target == "likelihood":
            return False
        if wiring.reverse and self.n & (self.n - 1):
            return False  # recovery knows reversed butterflies on powers of two only
        if request.wiring == "auto" and not np.count_nonzero(self.matrix - np.diag(np.diagonal(self.matrix))):
            return False  # a diagonal is a butterfly of angles that are zero, and pairs without any
        allowed = Butterfly(self.n).n_rotations <= self.job.budget
        return request.wiring != "auto" or (allowed and request.target_angle is None and self.n > 1)

    def is_enough(self, name: str, candidate: Candidate) -> bool:
        free = candidate.operator.rotation.n_rotations == 0  # exact and without rotations: no form is cheaper
        return (name == "recovery" or (free and self.target == "matrix")) and candidate.objective < EXACT**2

    def is_promising(self, scout: float, best: float) -> bool:
        # More work takes 7 % off the squared error at most, on random matrices and on butterflies in noise.
        return scout <= (best * 1.2 if self.target == "matrix" else best + 0.05)

    def recover(self) -> Candidate | None:
        wiring, give_up = self.request.wiring, 0.02 if self.request.method == "auto" else 0.5
        reverse = isinstance(wiring, Butterfly) and wiring.reverse
        fit = recover_symmetric(self.matrix, reverse=reverse, give_up=give_up, pulse=self.job.watch.pulse)
        return None if fit is None else _symmetric("recovery", fit)

    def butterfly(self, **options: Any) -> Candidate:
        wiring = self.request.fixed_wiring(self.n)
        assert isinstance(wiring, Butterfly)
        fit = fit_butterfly(
            self.matrix,
            wiring.depth,
            reverse=wiring.reverse,
            target=self.target,
            effort=self.request.effort,
            seed=self.request.seed,
            callback=self.job.watch.callback,
            **options,
        )
        return _symmetric("butterfly", fit)

    def hybrid(self) -> Candidate:
        """The best of the family of rotations and rank-one terms."""
        request, family = self.request, self.job.family
        if self.target == "likelihood":
            return self.best([self.pairs(), *self._likely()])
        plan = HybridPlan.of_equal_work(self.n, self.job.budget) if family is None else family.plan
        fits = fit_hybrid(
            self.matrix, plan, seed=request.seed, callback=self.job.watch.callback, **request.options
        )
        return self.best(
            [_hybrid(fit) for fit in fits[:CONTENDERS]]
            + [_hybrid(f) for f in fits[CONTENDERS:] if not len(f.rotations.angles)]
        )

    def _likely(self) -> list[Candidate]:
        """Probabilistic PCA and factor analysis, which the family holds for the likelihood."""
        assert self.job.family is not None
        plan = self.job.family.plan
        forms = {
            "c·I + low rank": probabilistic_pca(self.matrix, [plan.multiple])[plan.multiple],
            "diagonal + low rank": factor_analysis(self.matrix, len(plan.rotations) - 1),
        }
        found = []
        for name, form in forms.items():
            loss = gaussian_loss(self.matrix, form) - 1.0  # as the mean of log d, where tr B⁻¹H = n
            found.append(_hybrid(HybridFit.without_rotations(form, [(name, 0, loss)])))
        return found

    def best(self, candidates: list[Candidate]) -> Candidate:
        """Within a budget, by what a rival would be better in: the angle, or the likelihood."""
        family = self.job.family
        if family is None or len(candidates) == 1:
            return super().best(candidates)
        if self.target == "likelihood":
            return min(candidates, key=lambda c: likelihood_score(self.matrix, c.operator))
        within = [
            c for c in candidates if cost_of(c.operator, self.job.prices).of(family.unit) <= family.amount
        ]
        exact = [c for c in within if c.objective < EXACT**2]
        if exact:  # what is left is rounding: the cheapest
            costs = [cost_of(c.operator, self.job.prices) for c in exact]
            return exact[min(range(len(exact)), key=lambda k: (costs[k].of(family.unit), costs[k].floats))]
        probes = HURRIED if self.job.watch.status else n_probes(self.n)
        angles = [
            error_angle(self.matrix, c.operator, probes, seed=self.request.seed + 2)
            for c in within or candidates
        ]
        return (within or candidates)[int(np.argmin(angles))]

    def pairs(self) -> Candidate:
        return self._chosen("pairs", fit_pairs)

    def grouped(self) -> Candidate:
        return self._chosen("grouped", fit_grouped)

    def _chosen(self, name: str, fit: Callable[..., DenseFit]) -> Candidate:
        """Fit on chosen pairs; for a target angle, to the relative error that gives it.

        That is a little below the angle's sine, by trying.
        """
        request, saved = self.request, self.job.saved
        for option in request.options:
            if option not in OPTIONS["symmetric"][name]:
                expected = "a fit with rank-one terms or from products for this option"
                raise ArgumentError(option, expected, f"a fit on chosen {name}", "leave it out")

        def once(error: float | None, **state: Any) -> Candidate:
            found = fit(
                self.matrix,
                self.job.budget,
                target=self.target,
                target_error=error,
                effort=request.effort,
                seed=request.seed,
                callback=self.job.watch.callback,
                **state,
                **request.options,
            )
            return _symmetric(name, found)

        if request.target_angle is None:
            return once(None, save=saved.saver(name), resume=saved.state(name))
        error = math.sin(math.radians(request.target_angle))
        measure = Measure(
            self.matrix, seed=request.seed + 1, probes=FEWER if request.effort == "quick" else None
        )
        for _ in range(TRIES):
            found = once(error)
            angle = float(measure.angles(found.operator)[0].mean())
            missed = angle > request.target_angle and found.operator.rotation.n_rotations < self.job.budget
            if not missed or self.job.watch.status or self.target != "matrix":
                break
            error *= 0.98 * request.target_angle / angle
        return found

    def quality(self, best: Candidate, others: dict[str, Any]) -> tuple[Quality, str]:
        exact = self.target == "matrix" and best.objective < EXACT**2
        family, sparse = self.job.family, self.job.problem.sparse if self.request.target == "matrix" else None
        name = "H" if self.function is None else self.function.name
        unit, amount = ("", 0.0) if family is None else (family.unit, family.amount)
        judged = Judged(self.job.prices, self.target, unit, amount, name)
        found = of_symmetric(self.matrix, self._fitted(best, others), sparse, judged)
        return found, "exact" if exact else "converged"


def _check_covariance(H: np.ndarray) -> None:
    unit = float(np.abs(H).max(initial=0.0)) or 1.0
    try:
        np.linalg.cholesky(H / unit + BELOW_ZERO * np.eye(len(H)))
    except np.linalg.LinAlgError:
        got = f"a negative eigenvalue, {np.linalg.eigvalsh(H)[0]:.3g}"
        raise ArgumentError(
            "H", "a covariance for target='likelihood'", got, "try `target='matrix'`"
        ) from None


def _function(job: Job, f: SpectralFunction, H: np.ndarray) -> np.ndarray:
    """f(H), with progress. A fit needs all of it: a limit of time, or Ctrl-C, takes effect when it is done."""
    stage = "invert" if job.request.target == "inverse" else "function"

    def report(columns: int) -> None:
        with contextlib.suppress(Stop):
            job.watch.callback(stage, columns, float("nan"))

    return f.of_matrix(H, report)


def symmetric_operator(wiring: Wiring, angles: np.ndarray, eigenvalues: np.ndarray) -> SymmetricOperator:
    """Q D Qᵀ."""
    return SymmetricOperator(Rotation(wiring, torch.from_numpy(angles)), torch.from_numpy(eigenvalues))


def _symmetric(method: str, fit: DenseFit) -> Candidate:
    operator = symmetric_operator(fit.wiring, fit.angles, fit.eigenvalues)
    return Candidate(method, operator, fit.history, fit.history[-1][2])


def _hybrid(fit: HybridFit) -> Candidate:
    symmetric, value = _symmetric("pairs", fit.rotations).operator, fit.history[-1][2]
    if not len(fit.weights) and len(fit.rotations.angles):  # rotations alone were best
        return Candidate("pairs", symmetric, fit.history, value)
    operator = HybridOperator(symmetric, torch.from_numpy(fit.basis), torch.from_numpy(fit.weights))
    return Candidate("hybrid" if len(fit.rotations.angles) else "low rank", operator, fit.history, value)
