"""Where EM begins, and how a mixture is regularised: ridge, number of rotations and noise, from held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from swallowtail.fitting.budget import default_budget
from swallowtail.gaussians.components import Components
from swallowtail.gaussians.selection import NOISES, Fold, Plan, choose
from swallowtail.operators import Rotation

HELD_OUT = 0.25  # share of the rows that choose how to regularise
TRIED = 3  # the held-out rows of this many components, the largest, choose ridge and number of rotations
ENOUGH = 8  # rows on either side of such a split
CHEAP = 2e5  # n·K up to which all of these try every ridge; beyond, the largest chooses ridge and K
USUAL = (0.03, 1e-3)  # ridge and noise where there are too few rows to choose


def start(model: Any, X: np.ndarray, often: np.ndarray, state: np.random.RandomState) -> Components:
    """Where EM of a `GivensMixture` begins, with the arguments of the model; row i counts ``often``[i] times."""
    k = model.n_components
    if model.means_init is not None:
        means = np.asarray(model.means_init, np.float64)
        with np.errstate(over="ignore"):  # to a mean far away
            distances = np.stack([((X - mean) ** 2).sum(1) for mean in means], axis=1)
        labels = distances.argmin(1)
    elif model.init_params == "random":
        labels = state.randint(0, k, len(X))
    else:
        labels = KMeans(k, n_init=1, random_state=state).fit(X, sample_weight=often).labels_.astype(np.int64)
    budget = default_budget(X.shape[1]) if model.n_rotations is None else model.n_rotations
    tied, rotations = model.rotations == "tied", None
    if model.shrinkage == "auto":
        generator = np.random.default_rng(state.randint(2**31 - 1))
        plan, rotations = make_plan(X, labels, k, often, budget, model.target, tied, generator)
        plan = plan._replace(background=1 / (1 + float(often.sum())))
    else:
        plan = Plan(0.0, budget, float(model.shrinkage))
    resp = np.zeros((len(X), k), X.dtype)
    resp[np.arange(len(X)), labels] = often
    components = Components(X, resp, plan, model.target, tied, rotations)
    if model.weights_init is not None:
        components.counts = np.asarray(model.weights_init, np.float64) * float(often.sum())
    if model.means_init is not None:
        components.means = np.asarray(model.means_init, np.float64).copy()
    return components


def make_plan(
    X: np.ndarray,
    labels: np.ndarray,
    k: int,
    often: np.ndarray,
    budget: int,
    target: str,
    tied: bool,
    generator: np.random.Generator,
) -> tuple[Plan, list[Rotation] | None]:
    """Ridge, number of rotations and noise, from held-out rows of the start; and the rotations tried on the way.

    The largest components choose ridge and number of rotations (`choose`). The noise is chosen by the mixture as a
    whole, because an outlier of one component may belong to another. The rotations come from three quarters of the
    rows. That is good enough to begin EM with, which chooses them again later. Components may have no rows.
    """
    held = generator.random(len(X)) < HELD_OUT
    seen = often > 0
    sizes = [
        (int((seen & ~held & (labels == j)).sum()), int((seen & held & (labels == j)).sum()))
        for j in range(k)
    ]
    order = sorted(range(k), key=lambda j: -sizes[j][0])
    large = [j for j in order[:TRIED] if min(sizes[j]) >= ENOUGH]
    if not large:
        return Plan(USUAL[0], budget, USUAL[1]), None
    train, rest = X[~held], X[held].astype(np.float64)
    folds = []
    for j in large:
        here, there = labels[~held] == j, labels[held] == j
        own, w = train[here].astype(np.float64), often[~held][here]
        mean = np.average(own, axis=0, weights=w)
        S = ((own - mean) * w[:, None]).T @ (own - mean) / w.sum()
        # Only second moments of held-out rows are used, so weights go into their lengths.
        lengths = np.sqrt(often[held][there] / often[held][there].mean())
        folds.append(Fold(S, (rest[there] - mean) * lengths[:, None]))
    plan = choose(folds, budget, target, every_fold=X.shape[1] * budget <= CHEAP)
    resp = np.zeros((len(train), k), np.float64)
    resp[np.arange(len(train)), labels[~held]] = often[~held]
    components = Components(train, resp, plan._replace(noise=USUAL[1]), target, tied)
    return plan._replace(noise=_best_noise(components, rest, often[held])), components.rotations


def _best_noise(components: Components, rows: np.ndarray, often: np.ndarray) -> float:
    """The b with the best mixture log-density of held-out rows (m, n), each counted so often."""
    scale = components.noise / components.plan.noise
    along = np.maximum(components.along, components.least)
    logs = np.empty((len(NOISES), len(rows), len(along)))
    for k, rotation in enumerate(components.rotations):
        d = along[k] + NOISES[:, None] * scale  # shape: (noises, n)
        z = rotation.T(torch.from_numpy(rows - components.means[k])).numpy()
        q = (1 / d) @ (z * z).T
        with np.errstate(divide="ignore"):
            logs[:, :, k] = np.log(components.weights[k]) - 0.5 * (q + np.log(d).sum(1)[:, None])
    return float(NOISES[int(np.argmax(logsumexp(logs, axis=2) @ often))])
