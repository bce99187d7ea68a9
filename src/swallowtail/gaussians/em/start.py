"""Where EM begins, and how a mixture is regularised: ridge, number of rotations and noise, from held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from swallowtail.fitting.budget import default_budget
from swallowtail.gaussians.em.components import SAMPLE, Components
from swallowtail.gaussians.regularise.noise import NOISES, NoisePlan, choose_noise
from swallowtail.gaussians.regularise.rotations import Fold
from swallowtail.gaussians.regularise.spectrum import repeated
from swallowtail.operators import Rotation

PARTS = 4  # of the rows; one of them chooses how to regularise, or each in turn where rows are few
TRIED = 3  # the held-out rows of this many components, the largest, choose ridge and number of rotations
ENOUGH = 20  # rows of a component on either side of such a split; with fewer everywhere, all splits are used
FEWEST = 4  # and a component that chooses needs so many
CHEAP = (
    2e5  # n·K up to which all of these try every ridge; beyond, the largest of one split chooses ridge and K
)
USUAL = (0.03, 1e-3)  # the ridge where no component has so many rows, and the noise before it is chosen
# What a column that mostly repeats one value may hold at least in each component, as rows of it that were missed.
MISSED = (0.0, 0.004, 0.04, 0.4, 4.0)


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
        seen = often > 0
        parts = (X, labels, often) if seen.all() else (X[seen], labels[seen], often[seen])
        plan, rotations = make_plan(*parts, k, budget, model.target, tied, generator)
    else:
        plan = NoisePlan(0.0, budget, float(model.shrinkage))
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
    often: np.ndarray,
    k: int,
    budget: int,
    target: str,
    tied: bool,
    generator: np.random.Generator,
) -> tuple[NoisePlan, list[Rotation] | None]:
    """How to regularise, from held-out rows of the start; and the rotations tried on the way, if they are good enough.

    The largest components choose ridge and number of rotations (`choose_noise`). The noise, and what may be expected of
    columns that mostly repeat one value, are chosen by the mixture as a whole, background included: an outlier of one
    component may belong to another, or to none. The rotations come from three quarters of the rows. Where rows are
    plenty, that is good enough to begin EM with, which chooses them again later.
    """
    share, cheap = 1 / (1 + float(often.sum())), X.shape[1] * budget <= CHEAP
    part = PARTS * generator.random(len(X)).argsort().argsort() // len(X)
    splits = [_Split(X, labels, often, part == number) for number in np.unique(part)]
    plenty = bool(splits[0].large(k, ENOUGH))
    splits = splits[: 1 if plenty or not cheap else PARTS]
    able = [(split, split.large(k, ENOUGH if plenty else FEWEST)) for split in splits]
    folds = [split.fold(j) for split, large in able for j in large]
    if tied and not plenty:
        folds = [split.fold(*range(k)) for split, large in able if large]
    plan = NoisePlan(USUAL[0], 0, 0.0)
    if folds:
        plan = choose_noise(folds, budget, target, every_fold=cheap)
    plan = plan._replace(noise=USUAL[1], background=share)
    if len(X) < 2:  # none can be held out
        return plan, None
    repeats = repeated(X[:SAMPLE])
    missed = np.minimum(np.array(MISSED if repeats.any() else MISSED[:1]) * k / len(X), 1.0)
    total = np.zeros((len(missed), len(NOISES)))
    for split in splits:
        components = split.components(k, plan, target, tied)
        total += _log_densities(components, *split.held_out, repeats, missed)
    least, noise = np.unravel_index(int(np.argmax(total)), total.shape)
    plan = plan._replace(noise=float(NOISES[noise]), missed=float(missed[least]))
    return plan, components.rotations if plenty else None


class _Split:
    """Rows of the start, in two: those to fit and those held out."""

    def __init__(self, X: np.ndarray, labels: np.ndarray, often: np.ndarray, held: np.ndarray) -> None:
        self.held, self._labels, self._often = held, labels, often
        self._train, self._rest = X[~held], X[held].astype(np.float64)

    @property
    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, n), and how often each counts."""
        return self._rest, self._often[self.held]

    def large(self, k: int, enough: int) -> list[int]:
        """The components with the most rows, of those with enough on either side."""
        inside, outside = (np.bincount(self._labels[side], minlength=k) for side in (~self.held, self.held))
        order = sorted(range(k), key=lambda j: -inside[j])[:TRIED]
        return [j for j in order if min(inside[j], outside[j]) >= enough]

    def fold(self, *among: int) -> Fold:
        """The covariance within these components, and their held-out rows less the means."""
        scatter, rows = np.zeros((self._train.shape[1],) * 2), []
        inside, outside, w = self._labels[~self.held], self._labels[self.held], self._often[~self.held]
        kept = [j for j in among if (inside == j).any()]
        for j in kept:
            own, often = self._train[inside == j].astype(np.float64), w[inside == j]
            mean = np.average(own, axis=0, weights=often)
            scatter += ((own - mean) * often[:, None]).T @ (own - mean)
            # Only second moments of held-out rows are used, so weights go into their lengths.
            lengths = np.sqrt(self._often[self.held][outside == j])
            rows.append((self._rest[outside == j] - mean) * lengths[:, None])
        held_out = np.concatenate(rows)
        usual = self._often[self.held][np.isin(outside, kept)].mean()
        return Fold(scatter / w[np.isin(inside, kept)].sum(), held_out / np.sqrt(usual))

    def components(self, k: int, plan: NoisePlan, target: str, tied: bool) -> Components:
        """A mixture of the rows that are not held out."""
        resp = np.zeros((len(self._train), k), np.float64)
        resp[np.arange(len(self._train)), self._labels[~self.held]] = self._often[~self.held]
        return Components(self._train, resp, plan, target, tied)


def _log_densities(
    components: Components, rows: np.ndarray, often: np.ndarray, repeats: np.ndarray, missed: np.ndarray
) -> np.ndarray:  # shape: (len(missed), noises)
    """Summed log-densities of held-out rows (m, n), each counted so often, for every `NoisePlan.missed` and noise."""
    scale = components.noise / components.plan.noise
    along = np.maximum(components.along, components.least)
    logs = np.empty((len(missed), len(NOISES), len(rows), len(along)))
    for k, rotation in enumerate(components.rotations):
        z = rotation.T(torch.from_numpy(rows - components.means[k])).numpy()
        squares = (z * z).T
        for place, share in enumerate(missed):
            least = np.where(repeats, np.maximum(along[k], share * scale), along[k])
            d = least + NOISES[:, None] * scale  # shape: (noises, n)
            with np.errstate(divide="ignore"):
                weight = np.log(components.weights[k])
            logs[place, :, :, k] = weight - 0.5 * ((1 / d) @ squares + np.log(2 * np.pi * d).sum(1)[:, None])
    assert components.background is not None
    return components.background.beside(rows, logsumexp(logs, axis=-1)) @ often
