"""R ≈ Q in every form: recovered, on pairs, on a butterfly; with signs where the determinant is −1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from swallowtail.fitting.core.records import AlignedFit
from swallowtail.fitting.forms.base import Forms, Job
from swallowtail.fitting.methods.butterfly import align_butterfly
from swallowtail.fitting.methods.pairs import align_pairs
from swallowtail.fitting.methods.recovery import recover_rotation
from swallowtail.fitting.quality import EXACT, of_rotation
from swallowtail.fitting.result import Candidate, Quality
from swallowtail.operators import Rotation, SignedRotation
from swallowtail.wiring import Butterfly, Wiring

WORTH_IT = 1.1  # a scout this many times as far off, squared, as the best form is not looked into further


class OrthogonalForms(Forms):
    """R ≈ Q, or Q·diag(±1) where the determinant is −1."""

    def __init__(self, job: Job) -> None:
        R = job.problem.dense
        assert R is not None
        super().__init__(job, R)
        self.signs = determinant_signs(R)

    def fitters(self) -> dict[str, Callable[[], Candidate | None]]:
        return {"recovery": self.recover, "pairs": self.pairs}

    def may_recover(self) -> bool:
        if self.request.wiring == "auto":
            if not np.count_nonzero(self.matrix * self.signs - np.eye(self.n)):
                return False  # pairs without any rotation are the identity as well
            return Butterfly(self.n).n_rotations <= self.job.budget
        wiring = self.request.fixed_wiring(self.n)
        return isinstance(wiring, Butterfly) and wiring.depth == 1

    def is_enough(self, name: str, candidate: Candidate) -> bool:
        return candidate.objective < EXACT**2

    def is_promising(self, scout: float, best: float) -> bool:
        return scout < WORTH_IT * best

    def recover(self) -> Candidate | None:
        """R read off as a butterfly or, if no wiring forbids it, as a transposed one; None if it is neither."""
        request, best = self.request, None
        given = request.wiring if isinstance(request.wiring, Butterfly) else None
        for reverse in (False, True) if given is None else (given.reverse,):
            R = self.matrix.T if reverse else self.matrix
            if request.method == "auto" and not _may_be_butterfly(R):
                continue
            fit = recover_rotation(R)
            operator = orthogonal_operator(fit.wiring, fit.angles, fit.signs)
            history = [("recover", fit.wiring.n_rotations, fit.relative_error**2)]
            if best is None or history[0][2] < best.objective:
                best = Candidate("recovery", operator.T if reverse else operator, history, history[0][2])
            if fit.relative_error < EXACT:
                break
        limit = EXACT if request.method == "auto" else 0.5
        return best if best is not None and best.objective < limit**2 else None

    def butterfly(self, **options: Any) -> Candidate:
        wiring, callback = self.request.fixed_wiring(self.n), self.job.watch.callback
        R = self.matrix * self.signs
        fit = align_butterfly(
            R, wiring, effort=self.request.effort, seed=self.request.seed, callback=callback, **options
        )
        return self._candidate("butterfly", fit)

    def pairs(self) -> Candidate:
        request, saved, error = self.request, self.job.saved, None
        if request.target_angle is not None:
            # cos ∠ is tr(QᵀR)/n on the average over x, so ‖R − Q‖/√n = 2 sin(∠/2).
            error = 2 * math.sin(math.radians(request.target_angle) / 2)
        fit = align_pairs(
            self.matrix * self.signs,
            self.job.budget,
            target_error=error,
            effort=request.effort,
            seed=request.seed,
            callback=self.job.watch.callback,
            save=saved.saver("pairs"),
            resume=saved.state("pairs"),
            **request.options,
        )
        return self._candidate("pairs", fit)

    def _candidate(self, method: str, fit: AlignedFit) -> Candidate:
        operator = orthogonal_operator(fit.wiring, fit.angles, self.signs)
        return Candidate(method, operator, fit.history, fit.history[-1][2])

    def quality(self, best: Candidate, others: dict[str, Any]) -> tuple[Quality, str]:
        found = of_rotation(self.matrix, self._fitted(best, others), self.job.problem.samples)
        return found, "exact" if found.relative_error < EXACT else "converged"


def determinant_signs(R: np.ndarray) -> np.ndarray:  # shape: (n,)
    """Signs of columns that make the determinant +1: where it is −1, of the one most turned round."""
    signs = np.ones(len(R))
    if np.linalg.slogdet(R)[0] < 0:
        signs[np.argmin(np.diagonal(R))] = -1.0
    return signs


def orthogonal_operator(wiring: Wiring, angles: np.ndarray, signs: np.ndarray) -> Rotation | SignedRotation:
    """Q, or Q·diag(signs) if there are negative ones."""
    rotation = Rotation(wiring, torch.from_numpy(angles))
    return rotation if (signs > 0).all() else SignedRotation(rotation, torch.from_numpy(signs))


def _may_be_butterfly(R: np.ndarray) -> bool:
    """Whether rows r and r + p are parallel left of column p, as the first layer of a butterfly makes them."""
    p = Butterfly(len(R)).strides[0] if len(R) > 1 else 1
    top, bottom = R[: len(R) - p, :p], R[p:, :p]
    gram = (top * top).sum(1) * (bottom * bottom).sum(1) - (top * bottom).sum(1) ** 2
    return bool(gram.max(initial=0.0) < 1e-6)  # the square of 1e-3: far above rounding
