"""How a covariance is regularised: a blend of six models, shares and settings chosen on held-out rows.

S is the sample covariance of the training rows of a fold, in units of its mean variance. The models are

| name | what it is | good for |
|---|---|---|
| rotations | Q D Qᵀ, Q grown greedily on S + a; several ridges a, numbers K and rules for D (spectrum.py) | most data |
| shrunk | (1 − δ) S + δ with the δ of OAS | very few rows of columns in the same unit |
| scaled | OAS of the correlations, each column with its own variance | few rows of columns in different units |
| tree | Chow and Liu's tree (tree.py) | neighbours in time or space |
| factors | a diagonal and rank-one terms (factor_analysis.py) | factor models |
| principal | eigenvectors of the correlations, rules for D as for rotations (principal_axes.py) | near copies |

`choose_blend` compares the mean held-out log-density over all folds: first of rotations, each rule for D learned from
the other folds, and of numbers of factors; then of sums of the precision matrices (weights.py). A model that alone is
as good, within `TOLERANCE`, is taken alone. heavy_tails.py and outlier_bound.py keep outliers in bounds. `fit_blend`
applies the plan to a whole sample, and factorise.py writes the result as Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ.

The ridge is there for nearly constant columns: two of them that were once non-zero together would look perfectly
correlated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import conjugate, rotate_rows
from swallowtail.gaussians.regularise import factor_analysis, spectrum
from swallowtail.gaussians.regularise.factorise import CovarianceFactors, along, factorise
from swallowtail.gaussians.regularise.heavy_tails import cautious
from swallowtail.gaussians.regularise.outlier_bound import bounded, worth_it
from swallowtail.gaussians.regularise.principal_axes import best_rule, principal_axes, principal_precision
from swallowtail.gaussians.regularise.rotations import Fold, grow, mean_variance
from swallowtail.gaussians.regularise.shrinkage import reconsidered, scaled, shrunk
from swallowtail.gaussians.regularise.spectrum import RULES, Axes, Level
from swallowtail.gaussians.regularise.tree import tree_precision
from swallowtail.gaussians.regularise.weights import FoldModels, best_blend, best_single, inverse

MODELS = ("rotations", "shrunk", "scaled", "tree", "factors", "principal")
ROTATIONS, SHRUNK, SCALED, _, FACTORS, _ = range(len(MODELS))
RIDGES = (0.003, 0.03)  # a
PREFIXES = (0.0, 1 / 32, 1 / 16, 0.125, 0.25, 0.5, 1.0)  # of the rotations allowed
RANKS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120)  # of factor analysis
MOST_FACTORS = 0.7  # of rows and of columns: a spectrum that falls evenly has many
PASSED = 4  # times the best number so far are tried
TOLERANCE = 1e-3  # nats per dimension
LEAST_SHARE = 0.02  # of the largest: what a model must have in the first fold to be tried in all


class BlendPlan(NamedTuple):
    """What `choose_blend` found."""

    ridge: float  # a
    n_rotations: int  # K of the model "rotations"
    level: Level  # its rule for D
    n_factors: int
    weights: np.ndarray  # of `MODELS`
    bounded: bool  # whether outliers are kept in bounds (outlier_bound.py)
    principal: Level | None = None  # the rule for principal axes, if those may be used

    @property
    def alone(self) -> int | None:
        """The only model with a weight, or None."""
        used = np.nonzero(self.weights)[0]
        return int(used[0]) if len(used) == 1 else None


def choose_blend(
    folds: Sequence[Fold],
    unseen: np.ndarray,
    n_samples: float,
    budget: int,
    target: str,
    blended: bool,
    cheap: bool,
) -> BlendPlan:
    """The plan with the best mean held-out log-density.

    Args:
        folds: (S, held-out rows); all with the same n.
        unseen: the variance of every column that may have been missed, shape (n,); see `spectrum.unseen`.
        n_samples: rows of the whole sample.
        budget: the largest K.
        target: "likelihood" or "matrix".
        blended: whether other models than rotations may be used.
        cheap: whether all folds try every ridge and find the shares; otherwise the first one chooses.
    """
    counts = sorted({round(share * budget) for share in PREFIXES})
    found = _rotations(folds, unseen, n_samples, counts, target, cheap)
    trials = {
        (ridge, count, rule): spectrum.cross_validated(axes, rule).mean() / len(unseen)
        for (ridge, count), axes in found.items()
        for rule in RULES
    }
    near = min(trials.values()) + TOLERANCE
    ridge, count, rule = min((key for key in trials if trials[key] < near), key=lambda k: (k[1], trials[k]))
    axes = found[ridge, count]
    alone = np.eye(len(MODELS))[ROTATIONS]
    plan = BlendPlan(ridge, count, spectrum.learn(axes, rule), 0, alone, False)
    if not blended:
        return plan
    plan = plan._replace(n_factors=_best_rank(folds if cheap else folds[:1], unseen, n_samples))
    own: list[Axes] = []
    if cheap:  # with 784 columns (Fashion-MNIST) they gained nothing
        own = [principal_axes(fold, unseen, n_samples) for fold in folds]
        plan = plan._replace(principal=spectrum.learn(own, best_rule(own)))
    seen = (
        _seen(fold, axes, own, index, rule, unseen, n_samples, plan.n_factors)
        for index, fold in enumerate(folds)
    )
    weights, bound = _shares(seen, n_samples, cheap)
    return plan._replace(weights=weights, bounded=bound)


def _shares(folds: Iterator[FoldModels], n_samples: float, cheap: bool) -> tuple[np.ndarray, bool]:
    """The best weights of `MODELS`, of one model alone if that is nearly as good; and whether to bound their sum."""
    seen = [next(folds)] if not cheap else list(folds)
    best = best_blend(seen)
    if not cheap:  # the first fold says which models count, all folds how much
        used = np.nonzero(best.weights > LEAST_SHARE * best.weights.max())[0].tolist()
        seen = [fold._replace(members=[fold.members[i] for i in used]) for fold in (*seen, *folds)]
        best = best_blend(seen)
    else:
        used = list(range(len(seen[0].members)))
    simple = min((best_single(seen, place) for place in range(len(used))), key=lambda single: single.loss)
    weights, found = np.zeros(len(MODELS)), simple if simple.loss < best.loss + TOLERANCE else best
    weights[used] = found.weights
    if cheap:  # and so no model is missing
        weights = cautious(seen, weights, SHRUNK, SCALED, n_samples)
    return weights, worth_it(seen, weights[used])


def _seen(
    fold: Fold,
    axes: list[Axes],
    principal: list[Axes],
    index: int,
    rule: str,
    unseen: np.ndarray,
    n_samples: float,
    n_factors: int,
) -> FoldModels:
    """The models of one fold, and second moments of its held-out rows."""
    rest, own = n_samples - len(fold.held_out), axes[index]
    d = spectrum.learn(spectrum.others(axes, index), rule)(own.own, own.floor)
    level = spectrum.learn(spectrum.others(principal, index), best_rule(principal)) if principal else None
    s = mean_variance(fold.covariance)
    S, floor = fold.covariance / s, unseen / s
    members = _precisions(S, floor, rest, _rotated(own.pairs, own.angles, d), n_factors, level)
    moments = (fold.held_out.T @ fold.held_out) / (s * len(fold.held_out))
    moments[np.diag_indices(len(S))] += floor
    usual = shrunk(S, floor, rest)
    models = ((usual, members[SHRUNK]), (scaled(S, floor, rest), members[SCALED]))
    moments = reconsidered(moments, n_samples, np.diagonal(S) + floor, models)
    return FoldModels(members, moments, usual, fold.held_out / np.sqrt(s))


def blended_covariance(
    S: np.ndarray, plan: BlendPlan, unseen: np.ndarray, n_samples: float, target: str
) -> np.ndarray:
    """Σ (n, n) of a whole sample under a plan; arguments as of `choose_blend`."""
    s = mean_variance(S)
    S, floor = S / s, unseen / s
    pairs, angles = grow(S, plan.ridge, plan.n_rotations, target)
    own = np.maximum(np.diagonal(conjugate(S, pairs, angles)), 0.0)
    d = plan.level(own, along(pairs, angles, floor))
    members = _precisions(S, floor, n_samples, _rotated(pairs, angles, d), plan.n_factors, plan.principal)
    # Without principal axes, the last weight is 0 and has no member.
    P = sum(share * member for share, member in zip(plan.weights, members, strict=False) if share)
    if plan.bounded:
        P = bounded(P, shrunk(S, floor, n_samples))
    return s * inverse(P)


def fit_blend(
    S: np.ndarray,
    plan: BlendPlan,
    unseen: np.ndarray,
    n_samples: float,
    target: str,
    polish: int,
    budget: int,
    terms: bool,
) -> CovarianceFactors:
    """The covariance of a whole sample under a plan: at most ``budget`` rotations, and ``terms`` if wanted."""
    s, n = mean_variance(S), len(S)
    if plan.alone == FACTORS and terms and not plan.bounded:
        (found,) = factor_analysis.factor_path(S / s, [plan.n_factors])
        found = found._replace(noise=np.maximum(found.noise, unseen / s))
        none = np.zeros((0, 2), np.int64), np.zeros(0)
        scale = s / plan.weights[FACTORS]
        return CovarianceFactors(*none, scale * found.noise, *factor_analysis.whitened_terms(found))
    if plan.alone != ROTATIONS or plan.bounded:
        return factorise(
            blended_covariance(S, plan, unseen, n_samples, target), unseen, budget, target, polish, terms
        )
    pairs, angles = grow(S, plan.ridge, plan.n_rotations, target, polish)
    own = np.maximum(np.diagonal(conjugate(S, pairs, angles)), 0.0)
    d = plan.level(own / s, along(pairs, angles, unseen) / s) / plan.weights[ROTATIONS]
    return CovarianceFactors(pairs, angles, s * d, np.zeros((n, 0)), np.zeros(0))


def _rotations(
    folds: Sequence[Fold], unseen: np.ndarray, n_samples: float, counts: list[int], target: str, cheap: bool
) -> dict[tuple[float, int], list[Axes]]:
    """The axes of all folds, for every ridge and number of rotations."""
    found: dict[tuple[float, int], list[Axes]] = {}
    ridges: tuple[float, ...] = RIDGES
    for fold in folds:
        for ridge in ridges:
            walk = _walk(fold, ridge, counts, target, unseen, n_samples - len(fold.held_out))
            for count, axes in zip(counts, walk, strict=True):
                found.setdefault((ridge, count), []).append(axes)
        if not cheap and len(ridges) > 1:
            best = min(found, key=lambda key: spectrum.cross_validated(found[key], "linear")[0])
            ridges = (best[0],)
            found = {key: value for key, value in found.items() if key[0] == best[0]}
    return found


def _walk(
    fold: Fold, ridge: float, counts: list[int], target: str, unseen: np.ndarray, n_samples: float
) -> Iterator[Axes]:
    """Variances along Q, of both kinds of rows, for all numbers of rotations in turn."""
    S, s = fold.covariance, mean_variance(fold.covariance)
    delta = spectrum.analytic_intensity(S, n_samples)
    pairs, angles = grow(S, ridge, counts[-1], target)
    Z, F, A, used = np.ascontiguousarray(fold.held_out.T, dtype=np.float64), np.diag(np.sqrt(unseen)), S, 0
    for count in counts:
        part = slice(used, max(used, min(count, len(angles))))
        used = part.stop
        for rows in (Z, F):
            rotate_rows(rows, pairs[part], np.cos(angles[part]), np.sin(angles[part]), True)
        A = conjugate(A, pairs[part], angles[part])
        own, least = np.maximum(np.diagonal(A), 0.0) / s, (F * F).sum(1) / s
        yield Axes(own, (Z * Z).mean(1) / s + least, Z.shape[1], least, delta, pairs[:used], angles[:used])


def _best_rank(folds: Sequence[Fold], unseen: np.ndarray, n_samples: float) -> int:
    """The number of factors with the least mean loss; a search that has passed its best ends."""
    ranks = [rank for rank in RANKS if rank < MOST_FACTORS * min(len(unseen), n_samples)] or [0]
    scales = [mean_variance(fold.covariance) for fold in folds]
    paths = [
        factor_analysis.factor_path(fold.covariance / s, ranks) for fold, s in zip(folds, scales, strict=True)
    ]
    best, least = ranks[0], np.inf
    for rank in ranks:
        if rank > PASSED * max(best, 1):
            break
        loss = 0.0
        for path, fold, s in zip(paths, folds, scales, strict=True):
            found = next(path)
            safe = found._replace(noise=np.maximum(found.noise, unseen / s))
            loss += factor_analysis.mean_loss(safe, fold.held_out / np.sqrt(s), unseen / s)
        if loss < least:
            best, least = rank, loss
    return best


def _precisions(
    S: np.ndarray,
    floor: np.ndarray,
    n_samples: float,
    rotated: np.ndarray,
    n_factors: int,
    principal: Level | None,
) -> list[np.ndarray]:
    """The precision matrices of the `MODELS`, for S of mean variance 1; ``floor`` is what was not seen."""
    linear = [inverse(model(S, floor, n_samples)) for model in (shrunk, scaled)]
    (found,) = factor_analysis.factor_path(S, [n_factors])
    found = found._replace(noise=np.maximum(found.noise, floor))
    V, w = factor_analysis.whitened_terms(found)
    terms = (np.eye(len(S)) - (V * (w / (1 + w))) @ V.T) / np.sqrt(np.outer(found.noise, found.noise))
    last = [] if principal is None else [principal_precision(S, floor, principal)]
    return [rotated, *linear, tree_precision(S + np.diag(floor), n_samples), terms, *last]


def _rotated(pairs: np.ndarray, angles: np.ndarray, variances: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """Q D⁻¹ Qᵀ."""
    basis = np.eye(len(variances))  # becomes Qᵀ
    rotate_rows(basis, pairs, np.cos(angles), np.sin(angles), True)
    return (basis.T / variances) @ basis
