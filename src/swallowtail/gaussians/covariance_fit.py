"""From moments to the covariance of a `GivensCovariance`: three ways, by what was asked for and what was kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.factor import fit_factor
from swallowtail.gaussians.factored import FactoredCovariance, diagonal_along
from swallowtail.gaussians.regularise import spectrum
from swallowtail.gaussians.regularise.blend import MODELS, BlendPlan, choose_blend, fit_blend
from swallowtail.gaussians.regularise.factorise import CovarianceFactors, factorise
from swallowtail.gaussians.regularise.noise import NOISES
from swallowtail.gaussians.regularise.rotations import (
    Fold,
    fit_covariance,
    least_variances,
    mean_variance,
    rotation_of,
)
from swallowtail.gaussians.statistics import DenseMoments, Reservoir, RowStatistics, SketchMoments
from swallowtail.operators import Rotation
from swallowtail.wiring import Wiring

POLISH = 20  # L-BFGS iterations on all angles: 0.018 bits per pixel better on held-out MNIST-5k
N_FOLDS = 3
MORE_FOLDS = 5  # where there are few rows or columns: it costs nothing, and every row counts
CHEAP = 1e7  # n·K up to which every fold chooses the ridge; beyond, only the first
LARGEST_BLEND = 1024  # columns up to which models are blended: each step is a Cholesky decomposition
ENOUGH = 5  # rows from which anything is chosen
MORE = 4  # times n⌈lg n⌉/2 rotations are tried, up to so many columns:
LARGEST_SEARCH = 1024


def most_rotations(n: int) -> int:
    """The largest number of rotations that is tried by default, for n columns."""
    usual = default_budget(n)
    return min(MORE * usual, max(usual, n * n // 2)) if n <= LARGEST_SEARCH else usual


class CovarianceRequest(NamedTuple):
    """What a `GivensCovariance` was asked for."""

    n_rotations: int  # the largest K
    wiring: str | Wiring
    target: str
    shrinkage: str | float
    rank_one: bool
    blend: bool
    seed: int
    dtype: Any


class CovarianceFit(NamedTuple):
    """A covariance and how it came about."""

    factored: FactoredCovariance
    blend: dict[str, float]  # the weights of the models' precision matrices
    noise: float  # the least variance along any axis, in units of the mean variance
    plan: BlendPlan | None = None  # what cross-validation chose, if it did


def fit_statistics(
    statistics: RowStatistics, request: CovarianceRequest, plan: BlendPlan | None = None
) -> CovarianceFit:
    """From all that was kept of the rows; with the plan of a fit to similar rows, nothing is chosen again."""
    if isinstance(statistics.moments, DenseMoments):
        return _fit_dense(statistics.moments, statistics.sample, request, plan)
    return _fit_sketch(statistics.moments, statistics.sample, request)


def _fit_dense(
    moments: DenseMoments, sample: Reservoir, request: CovarianceRequest, chosen: BlendPlan | None
) -> CovarianceFit:
    """From exact moments, and a sample of the rows to hold out."""
    S, rows, target = moments.covariance, sample.rows.astype(np.float64), request.target
    s, pairs_wanted = mean_variance(S), request.wiring == "pairs"
    if request.shrinkage != "auto":
        rotation, d = fit_covariance(
            S, 0.0, request.n_rotations, target, request.wiring, POLISH, request.seed
        )
        return _without_terms(
            rotation, d + float(request.shrinkage) * s, {"rotations": 1.0}, s, request.dtype
        )
    unseen = spectrum.unseen(np.diagonal(S), rows, moments.count)
    if moments.count < ENOUGH:
        return _fit_few(moments, unseen, request)
    cheap = len(S) * request.n_rotations <= CHEAP
    count = min(MORE_FOLDS if cheap else N_FOLDS, len(rows))
    parts = zip(np.array_split(rows, count), np.array_split(sample.weights, count), strict=True)
    folds = [_without(moments, part, weights) for part, weights in parts]
    budget = request.n_rotations
    blended = request.blend and pairs_wanted and 2 <= len(S) <= LARGEST_BLEND
    found = chosen or choose_blend(folds, unseen, moments.count, budget, target, blended, cheap)
    blend = dict(zip(MODELS, found.weights.tolist(), strict=True))
    if pairs_wanted:
        made = fit_blend(S, found, unseen, moments.count, target, POLISH, budget, request.rank_one)
        return _with_terms(made, blend, s, request.dtype)._replace(plan=found)
    rotation, d = fit_covariance(S, found.ridge, budget, target, request.wiring, POLISH, request.seed)
    d = s * found.level(d / s, diagonal_along(rotation, unseen) / s)
    return _without_terms(rotation, d, blend, s, request.dtype)


def _fit_few(moments: DenseMoments, unseen: np.ndarray, request: CovarianceRequest) -> CovarianceFit:
    """From rows too few to hold any out: the OAS estimate, for a new row about a mean that is itself uncertain.

    With mean and S of the same N rows, a new row's second moments about that mean are (N + 1) / (N − 1) times S.
    """
    S, N = moments.covariance, max(moments.count, 2.0)
    s, delta = mean_variance(S), spectrum.analytic_intensity(S, N)
    more = 1.0 if moments.centered else (N + 1) / (N - 1)
    C = more * ((1 - delta) * S + delta * s * np.eye(len(S))) + np.diag(unseen)
    blend = {"shrunk": 1.0}
    if request.wiring == "pairs" and 2 <= len(S) <= LARGEST_BLEND:
        made = factorise(C, unseen, request.n_rotations, request.target, POLISH, request.rank_one)
        return _with_terms(made, blend, s, request.dtype)
    rotation, d = fit_covariance(C, 0.0, 0, request.target, request.wiring, POLISH, request.seed)
    return _without_terms(rotation, d, blend, s, request.dtype)


def _with_terms(made: CovarianceFactors, blend: dict[str, float], s: float, dtype: Any) -> CovarianceFit:
    rotation = rotation_of(len(made.variances), made.pairs, made.angles)
    factored = FactoredCovariance(rotation, made.variances, made.basis, made.weights, dtype)
    return CovarianceFit(factored, blend, factored.least / s)


def _without_terms(
    rotation: Rotation, d: np.ndarray, blend: dict[str, float], s: float, dtype: Any
) -> CovarianceFit:
    factored = FactoredCovariance(rotation, d, np.zeros((len(d), 0)), np.zeros(0), dtype)
    return CovarianceFit(factored, blend, float(d.min()) / s)


def _without(moments: DenseMoments, rows: np.ndarray, weights: np.ndarray) -> Fold:
    """A fold: weights of held-out rows go into their lengths, since only their second moments are used."""
    covariance, held_out = moments.without(rows, weights)
    return Fold(covariance, held_out * np.sqrt(weights / weights.mean())[:, None])


def _fit_sketch(moments: SketchMoments, sample: Reservoir, request: CovarianceRequest) -> CovarianceFit:
    """From a sketch. The variance that the sketch leaves out is rotated and added to D."""
    rows = sample.rows.astype(np.float64)
    fit = fit_factor(moments.factor(), request.n_rotations, seed=request.seed)
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    # diag(QᵀRQ) for the diagonal R, n quadratic forms in blocks.
    d = fit.eigenvalues + diagonal_along(rotation, moments.rest())
    d = np.maximum(d, least_variances(moments.variances))
    s = float(moments.variances.mean()) or 1.0
    if request.shrinkage != "auto":
        noise = float(request.shrinkage)
    else:
        d = np.maximum(d, diagonal_along(rotation, spectrum.unseen(moments.variances, rows, moments.count)))
        squares = rotation.T(torch.from_numpy(rows - moments.mean)).numpy() ** 2
        z2 = np.average(squares, axis=0, weights=sample.weights)
        noise = float(NOISES[int(np.argmin([spectrum.loss(z2, d + b * s) for b in NOISES]))])
    return _without_terms(rotation, d + noise * s, {"rotations": 1.0}, s, request.dtype)
