"""From moments to the covariance of a `GivensCovariance`: three ways, by what was asked for and what was kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.factor import fit_factor
from swallowtail.gaussians import regularise, spectrum
from swallowtail.gaussians.selection import (
    NOISES,
    Fold,
    Plan,
    fit_covariance,
    least_variances,
    mean_variance,
    rotation_of,
)
from swallowtail.gaussians.shape import Shape
from swallowtail.gaussians.statistics import DenseMoments, Reservoir, RowStatistics, SketchMoments
from swallowtail.gaussians.written import Parts, written
from swallowtail.operators import Rotation, SymmetricOperator
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


class Request(NamedTuple):
    """What a `GivensCovariance` was asked for."""

    n_rotations: int  # the largest K
    wiring: str | Wiring
    target: str
    shrinkage: str | float
    rank_one: bool
    blend: bool
    seed: int
    dtype: Any


class Found(NamedTuple):
    """A covariance and how it came about."""

    shape: Shape
    blend: dict[str, float]  # the weights of the models' precision matrices
    noise: float  # the least variance along any axis, in units of the mean variance
    plan: regularise.Plan | None = None  # what cross-validation chose, if it did


def fit_statistics(statistics: RowStatistics, request: Request, plan: regularise.Plan | None = None) -> Found:
    """From all that was kept of the rows; with the plan of a fit to similar rows, nothing is chosen again."""
    if isinstance(statistics.moments, DenseMoments):
        return _fit_dense(statistics.moments, statistics.sample, request, plan)
    return _fit_sketch(statistics.moments, statistics.sample, request)


def _fit_dense(
    moments: DenseMoments, sample: Reservoir, request: Request, chosen: regularise.Plan | None
) -> Found:
    """From exact moments, and a sample of the rows to hold out."""
    S, rows = moments.covariance, sample.rows.astype(np.float64)
    s, none = mean_variance(S), (np.zeros((len(S), 0)), np.zeros(0))
    pairs_wanted = request.wiring == "pairs"
    if request.shrinkage != "auto":
        plan = Plan(0.0, request.n_rotations, float(request.shrinkage))
        rotation, d = fit_covariance(S, plan, request.target, request.wiring, POLISH, request.seed)
        return Found(Shape(rotation, d, *none, request.dtype), {"rotations": 1.0}, float(d.min()) / s)
    unseen = spectrum.unseen(np.diagonal(S), rows, moments.count)
    if moments.count < ENOUGH:
        return _fit_few(moments, unseen, request)
    cheap = len(S) * request.n_rotations <= CHEAP
    count = min(MORE_FOLDS if cheap else N_FOLDS, len(rows))
    parts = zip(np.array_split(rows, count), np.array_split(sample.weights, count), strict=True)
    folds = [_without(moments, part, weights) for part, weights in parts]
    budget, target = request.n_rotations, request.target
    blended = request.blend and pairs_wanted and 2 <= len(S) <= LARGEST_BLEND
    found = chosen or regularise.choose(folds, unseen, moments.count, budget, target, blended, cheap)
    blend = dict(zip(regularise.MODELS, found.weights.tolist(), strict=True))
    if pairs_wanted:
        made = regularise.fit(S, found, unseen, moments.count, target, POLISH, budget, request.rank_one)
        return _found(made, blend, s, request.dtype)._replace(plan=found)
    plan = Plan(found.ridge, budget, 0.0)
    rotation, d = fit_covariance(S, plan, target, request.wiring, POLISH, request.seed)
    d = s * found.level(d / s, _along(rotation, unseen) / s)
    return Found(Shape(rotation, d, *none, request.dtype), blend, float(d.min()) / s)


def _fit_few(moments: DenseMoments, unseen: np.ndarray, request: Request) -> Found:
    """From rows too few to hold any out: the OAS estimate, for a new row about a mean that is itself uncertain.

    With mean and S of the same N rows, a new row's second moments about that mean are (N + 1) / (N − 1) times S.
    """
    S, N = moments.covariance, max(moments.count, 2.0)
    s, delta = mean_variance(S), spectrum.analytic_intensity(S, N)
    more = 1.0 if moments.centered else (N + 1) / (N - 1)
    C = more * ((1 - delta) * S + delta * s * np.eye(len(S))) + np.diag(unseen)
    blend = {"shrunk": 1.0}
    if request.wiring == "pairs" and 2 <= len(S) <= LARGEST_BLEND:
        made = written(C, unseen, request.n_rotations, request.target, POLISH, request.rank_one)
        return _found(made, blend, s, request.dtype)
    rotation, d = fit_covariance(C, Plan(0.0, 0, 0.0), request.target, request.wiring, POLISH, request.seed)
    none = np.zeros((len(d), 0)), np.zeros(0)
    return Found(Shape(rotation, d, *none, request.dtype), blend, float(d.min()) / s)


def _found(made: Parts, blend: dict[str, float], s: float, dtype: Any) -> Found:
    rotation = rotation_of(len(made.variances), made.pairs, made.angles)
    shape = Shape(rotation, made.variances, made.basis, made.weights, dtype)
    return Found(shape, blend, shape.least / s)


def _without(moments: DenseMoments, rows: np.ndarray, weights: np.ndarray) -> Fold:
    """A fold: weights of held-out rows go into their lengths, since only their second moments are used."""
    covariance, held_out = moments.without(rows, weights)
    return Fold(covariance, held_out * np.sqrt(weights / weights.mean())[:, None])


def _fit_sketch(moments: SketchMoments, sample: Reservoir, request: Request) -> Found:
    """From a sketch. The variance that the sketch leaves out is rotated and added to D."""
    rows = sample.rows.astype(np.float64)
    fit = fit_factor(moments.factor(), request.n_rotations, seed=request.seed)
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    # diag(QᵀRQ) for the diagonal R, n quadratic forms in blocks.
    d = fit.eigenvalues + _along(rotation, moments.rest())
    d = np.maximum(d, least_variances(moments.variances))
    s = float(moments.variances.mean()) or 1.0
    if request.shrinkage != "auto":
        noise = float(request.shrinkage)
    else:
        d = np.maximum(d, _along(rotation, spectrum.unseen(moments.variances, rows, moments.count)))
        squares = rotation.T(torch.from_numpy(rows - moments.mean)).numpy() ** 2
        z2 = np.average(squares, axis=0, weights=sample.weights)
        noise = float(NOISES[int(np.argmin([spectrum.loss(z2, d + b * s) for b in NOISES]))])
    d = d + noise * s
    none = np.zeros((len(d), 0)), np.zeros(0)
    return Found(Shape(rotation, d, *none, request.dtype), {"rotations": 1.0}, float(d.min()) / s)


def _along(rotation: Rotation, diagonal: np.ndarray) -> np.ndarray:  # shape: (n,)
    """diag(QᵀCQ) for C = diag(diagonal)."""
    return SymmetricOperator(rotation.T, torch.from_numpy(diagonal)).diagonal().numpy()
