"""How a covariance is regularised: Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ, everything chosen on held-out rows.

S is the sample covariance of the training rows of a fold, s its mean variance. Candidates are

- rotations: Q grown greedily on S + a·s for several ridges a and numbers K, and a rule for D (spectrum.py);
- rotations and rank-one terms: what Q leaves of the correlations, QᵀSQ whitened by D, has eigenvectors V; how large
  1 + w should be along them, held-out rows say in the same way as for D;
- factors: Q = 1, diagonal and rank-one terms by factor analysis (factors.py).

`choose` compares their mean held-out log-density over all folds, each rule learned from the other folds. Among
candidates that differ by less than `TOLERANCE` the simplest is taken. `fit` applies the plan to the whole sample.
The ridge is there for nearly constant columns: two of them that were once non-zero together would look perfectly
correlated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import conjugate, rotate_rows
from swallowtail.gaussians import factors, spectrum
from swallowtail.gaussians.selection import Fold, grow, mean_variance
from swallowtail.gaussians.spectrum import RULES, Axes, Level

RIDGES = (0.003, 0.03)  # a
PREFIXES = (0.0, 1 / 32, 1 / 16, 0.125, 0.25, 0.5, 1.0)  # of the rotations allowed
RANKS = (1, 2, 3, 5, 8, 12, 20, 30)  # of factor analysis
TOLERANCE = 1e-3  # nats per dimension
LARGEST = 2048  # columns up to which rank-one terms are tried: each trial is an eigendecomposition
LEAST_EIGENVALUE = 1e-3  # of what is left after whitening
# Rank-one terms are kept in the order of their gain in log-density, until all others together gain less than this.
NEGLIGIBLE = 1e-3  # nats per dimension


class Plan(NamedTuple):
    """What `choose` found."""

    ridge: float  # a
    n_rotations: int  # K
    level: Level  # for D
    terms: Level | None  # for 1 + w; None: no rank-one terms
    n_factors: int  # > 0: factor analysis, no rotations


class Parts(NamedTuple):
    """Σ = Q D^½ (1 + V diag(w) Vᵀ) D^½ Qᵀ."""

    pairs: np.ndarray  # (K, 2)
    angles: np.ndarray  # (K,)
    variances: np.ndarray  # D, shape: (n,)
    basis: np.ndarray  # V, shape: (n, r)
    weights: np.ndarray  # w > −1, shape: (r,)


class _Trial(NamedTuple):
    """A candidate."""

    plan: Plan
    rule: str
    losses: np.ndarray  # per fold and dimension, shape: (folds,)

    @property
    def mean(self) -> float:
        """Folds are of the same size, or differ by one row."""
        return float(self.losses.mean())


def choose(
    folds: Sequence[Fold],
    unseen: np.ndarray,
    n_samples: float,
    budget: int,
    target: str,
    terms: bool,
    cheap: bool,
) -> Plan:
    """The plan with the best mean held-out log-density.

    Args:
        folds: (S, held-out rows); all with the same n.
        unseen: the variance of every column that may have been missed, shape (n,); see `spectrum.unseen`.
        n_samples: rows of the whole sample.
        budget: the largest K.
        target: "likelihood" or "matrix".
        terms: whether rank-one terms may be used.
        cheap: whether all folds try every ridge; otherwise the first one chooses.
    """
    counts = sorted({round(share * budget) for share in PREFIXES})
    found = _rotations(folds, unseen, n_samples, counts, target, cheap)
    trials = [
        _Trial(
            Plan(ridge, count, spectrum.learn(axes, rule), None, 0),
            rule,
            spectrum.cross_validated(axes, rule) / len(unseen),
        )
        for (ridge, count), axes in found.items()
        for rule in RULES
    ]
    mean = lambda trial: trial.mean
    usual = min((t for t in trials if t.plan.n_rotations == counts[-1] and t.rule == "analytic"), key=mean)
    lowest = min(t.mean for t in trials)
    simple = min(
        (t for t in trials if t.mean < lowest + TOLERANCE), key=lambda t: (t.plan.n_rotations, t.mean)
    )
    chosen = simple if _better(simple, usual) else usual
    if not terms or not 2 <= len(unseen) <= LARGEST:
        return chosen.plan
    ridge, few = chosen.plan.ridge, counts[min(len(counts) - 1, 3)]
    for count in sorted({0, few, chosen.plan.n_rotations}):
        here = [t for t in trials if (t.plan.ridge, t.plan.n_rotations) == (ridge, count)]
        tried = _with_terms(folds, found[ridge, count], min(here, key=mean), chosen)
        chosen = tried if tried and _better(tried, chosen) else chosen
    tried = _with_factors(folds, unseen, n_samples, chosen)
    return tried.plan if tried and _better(tried, chosen) else chosen.plan


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


def _better(a: _Trial, b: _Trial) -> bool:
    """Whether a is better than b by more than the folds' own spread lets one expect of chance."""
    gain = b.losses - a.losses
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return float(gain.mean()) > max(TOLERANCE, error)


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


def _with_terms(folds: Sequence[Fold], axes: list[Axes], here: _Trial, rival: _Trial) -> _Trial | None:
    """Rank-one terms beside the rotations of a trial; None where the first fold shows that a rival is better."""
    eigen, offsets = [], []
    for index, (fold, own) in enumerate(zip(folds, axes, strict=True)):
        others = [a for i, a in enumerate(axes) if i != index]
        d = spectrum.learn(others, here.rule)(own.own, own.floor)
        s = mean_variance(fold.covariance)
        values, V = correlations(conjugate(fold.covariance, own.pairs, own.angles) / s, d)
        Z = np.ascontiguousarray(fold.held_out.T, dtype=np.float64)
        rotate_rows(Z, own.pairs, np.cos(own.angles), np.sin(own.angles), True)
        y = V.T @ (Z / np.sqrt(s * d)[:, None])
        squares, least = (y * y).mean(1) + (V * V).T @ (own.floor / d), np.full(len(d), LEAST_EIGENVALUE)
        eigen.append(own._replace(own=values, held_out=squares, floor=least))
        offsets.append(0.5 * float(np.log(d).sum()))
        # With one fold, the rule is learned where it is tried: no other could look better.
        if (
            index == 0
            and (spectrum.cross_validated(eigen, "monotone")[0] + offsets[0]) / len(d) > rival.losses[0]
        ):
            return None
    losses = (spectrum.cross_validated(eigen, "monotone") + offsets) / len(d)
    return _Trial(here.plan._replace(terms=spectrum.learn(eigen, "monotone")), here.rule, losses)


def correlations(R: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and vectors of what rotations leave: R = QᵀSQ with D on its diagonal, whitened by D.

    Where D is smaller than R's own diagonal, that diagonal is used: correlations stay within ±1.
    """
    full = np.maximum(d, np.diagonal(R))
    W = R / np.sqrt(np.outer(full, full))
    np.fill_diagonal(W, 1.0)
    values, vectors = np.linalg.eigh(W)
    return np.maximum(values, 1e-12), vectors


def _with_factors(
    folds: Sequence[Fold], unseen: np.ndarray, n_samples: float, rival: _Trial
) -> _Trial | None:
    """The best factor analysis; None where the first fold shows that a rival is better."""
    n = len(unseen)
    ranks = [rank for rank in RANKS if rank < min(n, n_samples) / 2]
    losses = np.full((len(ranks), len(folds)), np.inf)
    for index, fold in enumerate(folds):
        s = mean_variance(fold.covariance)
        for place, found in enumerate(factors.factor_path(fold.covariance / s, ranks)):
            safe = found._replace(noise=np.maximum(found.noise, unseen / s))
            losses[place, index] = factors.mean_loss(safe, fold.held_out / np.sqrt(s), unseen / s) / n
        if losses[:, index].min(initial=np.inf) > rival.losses[index] and index == 0:
            return None
    best = int(np.argmin(losses.mean(1)))
    return _Trial(rival.plan._replace(n_rotations=0, terms=None, n_factors=ranks[best]), "", losses[best])


def fit(S: np.ndarray, plan: Plan, unseen: np.ndarray, target: str, polish: int) -> Parts:
    """The covariance of a whole sample under a plan; arguments as of `choose`, ``polish`` as of `grow`."""
    s, n = mean_variance(S), len(S)
    if plan.n_factors:
        (found,) = factors.factor_path(S / s, [plan.n_factors])
        found = found._replace(noise=np.maximum(found.noise, unseen / s))
        none = np.zeros((0, 2), np.int64), np.zeros(0)
        return Parts(*none, s * found.noise, *factors.whitened_terms(found))
    pairs, angles = grow(S, plan.ridge, plan.n_rotations, target, polish)
    R, F = conjugate(S, pairs, angles), np.diag(np.sqrt(unseen))
    rotate_rows(F, pairs, np.cos(angles), np.sin(angles), True)
    d = plan.level(
        np.maximum(np.diagonal(R), 0.0) / s, (F * F).sum(1) / s
    )  # along Q: diag(Qᵀ diag(unseen) Q)
    if plan.terms is None:
        return Parts(pairs, angles, s * d, np.zeros((n, 0)), np.zeros(0))
    values, V = correlations(R / s, d)
    weights = plan.terms(values, np.full(n, LEAST_EIGENVALUE)) - 1
    gain = 0.5 * (weights - np.log1p(weights))
    order = np.argsort(-gain)
    kept = order[: int(np.searchsorted(-np.cumsum(gain[order][::-1])[::-1], -NEGLIGIBLE * n))]
    return Parts(pairs, angles, s * d, np.ascontiguousarray(V[:, kept]), weights[kept])
