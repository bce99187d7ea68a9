"""How good the fit and each rival are: all on the same probes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from swallowtail.fitting.methods.low_rank import FULL_EIGH, DiagonalLowRank, gaussian_loss
from swallowtail.fitting.result import Rival
from swallowtail.fitting.rivals.forms import Alternative, entries
from swallowtail.metrics import column_angles, probe_generator, relative_error
from swallowtail.operators import HybridOperator, SymmetricOperator

PROBES = 1000  # x for an angle; a fifth of it beyond FULL_EIGH, where angles hardly differ from x to x
SPARSE = 4  # a sparse product takes this many times as long per multiply-add as a dense one


class Measure:
    """Measures approximations of one matrix H (n, n).

    Args:
        H: the matrix.
        target: "matrix", or "likelihood": nats per dimension.
        seed: of the probes for the angle.
        probes: how many; those that `n_probes` says unless given.
    """

    def __init__(
        self, H: np.ndarray, target: str = "matrix", seed: int = 0, probes: int | None = None
    ) -> None:
        self.H, self.n, self.target, self.seed = H, len(H), target, seed
        count = n_probes(self.n) if probes is None else probes
        self.X = probe_generator(seed).standard_normal((count, self.n)).T
        self.HX = H @ self.X
        self.unit = float(np.abs(H).max(initial=0.0)) or 1.0  # squares of entries near 1e±200 leave float64
        self.norm = float(np.linalg.norm(H / self.unit))
        self.exact_score = 0.0
        if target == "likelihood":
            sign, size = np.linalg.slogdet(H)
            self.exact_score = nats(float(size) / self.n + 1.0) if sign > 0 else -np.inf

    def angles(self, form: Any) -> tuple[np.ndarray, float]:
        """Of each probe, in degrees; and the relative error, exact up to `FULL_EIGH`."""
        if self.n > FULL_EIGH or not self.norm:
            error = relative_error(self.H, form, n_probes=100, seed=self.seed).value
            return column_angles(self.HX, np.asarray(form @ self.X)), error
        B = entries(form)
        dense = isinstance(form, SymmetricOperator | HybridOperator)
        multiplied = B if dense or (issparse(form) and SPARSE * form.nnz > B.size) else form
        angles = column_angles(self.HX, np.asarray(multiplied @ self.X))
        return angles, float(np.linalg.norm((self.H - B) / self.unit)) / self.norm

    def __call__(self, form: Alternative) -> Rival:
        """The rival that an alternative is."""
        angles, error = self.angles(form.operator)
        score = likelihood_score(self.H, form.operator) if self.target == "likelihood" else None
        return form.measured(float(angles.mean()), error, score)


def likelihood_score(H: np.ndarray, B: Any) -> float:
    """The loss of the Gaussian with covariance B on data with covariance H, in nats per dimension; lower is better."""
    if isinstance(B, DiagonalLowRank):
        return nats(gaussian_loss(H, B))
    try:
        size, solved = float(B.logdet()), np.asarray(B.solve(H))
    except ValueError:  # a singular one
        return np.inf
    return nats((size + float(np.trace(solved))) / len(H)) if np.isfinite(size) else np.inf


def nats(loss: float) -> float:
    """From (log det B + tr B⁻¹H)/n to the loss of the density."""
    return 0.5 * (loss + float(np.log(2 * np.pi)))


def n_probes(n: int) -> int:
    """How many x an angle is averaged over."""
    return PROBES if n <= FULL_EIGH else PROBES // 5
