"""Mixtures of ten Gaussians on dequantised MNIST-5k: ours beside the rivals, every setting tuned alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.mixture import GaussianMixture
from tqdm import tqdm

from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.gaussians.rivals import (
    STEPS,
    TOLERANCE,
    TUNING_STEPS,
    K,
    N,
    Rival,
    bits,
    factor_analyser,
    ppca,
    shrunk,
    tune,
)
from swallowtail.gaussians.mixture import GivensMixture

FULL = N * (N + 1) // 2 + N  # numbers of one full Gaussian, mean included
ROUNDS = 5  # of timing score_samples; the median counts
FLOORS = [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
RANKS = [2, 5, 10, 20, 50, 100, 200, 400]  # at 400 a component has as many numbers as a full one
# Rotations of each component; with more than 13 800 the mixture has more than 5 % of the numbers of full ones.
ROTATIONS = [500, 1000, 2000, 3920, 7840, 13_800]
ALPHAS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.9]
BOTH = ("float32", "float64")


class Contender(NamedTuple):
    """A family of mixtures: (steps, *settings) ↦ an unfitted one."""

    make: Callable[..., Any]
    words: tuple[str, ...]  # the settings' names
    axes: list[list[Any]]  # their values
    start: tuple[int, ...]  # where tuning begins
    dtypes: tuple[str, ...]


def _givens(kind: str) -> Callable[..., Any]:
    return lambda steps, n_rotations=None: GivensMixture(
        K, n_rotations=n_rotations, rotations=kind, tol=TOLERANCE, max_iter=steps, random_state=0
    )


def _scikit(kind: str) -> Callable[..., Any]:
    return lambda steps, reg: GaussianMixture(
        K, covariance_type=kind, reg_covar=reg, tol=TOLERANCE, max_iter=steps, random_state=0
    )


def _rival(estimate: Callable[..., Any]) -> Callable[..., Any]:
    return lambda steps, *setting: Rival(estimate(*setting), steps)


CONTENDERS = {
    "GivensMixture": Contender(_givens("full"), ("n_rotations",), [ROTATIONS], (2,), BOTH),
    "GivensMixture, tied": Contender(_givens("tied"), ("n_rotations",), [ROTATIONS], (1,), BOTH),
    "scikit-learn diag": Contender(_scikit("diag"), ("reg_covar",), [FLOORS], (3,), BOTH),
    "scikit-learn full": Contender(_scikit("full"), ("reg_covar",), [FLOORS], (7,), BOTH),
    "scikit-learn tied": Contender(_scikit("tied"), ("reg_covar",), [FLOORS], (4,), BOTH),
    "mixture of factor analysers": Contender(
        _rival(factor_analyser), ("rank", "floor"), [RANKS, FLOORS], (2, 3), BOTH[1:]
    ),
    "mixture of PPCA": Contender(_rival(ppca), ("rank", "floor"), [RANKS, FLOORS], (5, 6), BOTH[1:]),
    "full, shrunk": Contender(_rival(shrunk), ("alpha",), [ALPHAS], (3,), BOTH[1:]),
}


def tuning(X: np.ndarray, names: list[str]) -> Iterator[list[Row]]:
    """Every setting tried on the training rows, the best of each contender first."""
    for name in names:
        c = CONTENDERS[name]
        found = tune(name, lambda *setting, c=c: c.make(TUNING_STEPS, *setting), X[:4000], c.axes, c.start)
        yield [
            {"task": "tuning", "method": name, "setting": _about(c, setting), "bits_per_dim": score}
            for setting, score in found
        ]


def mixture(X: np.ndarray, tried: list[Row], names: list[str]) -> Iterator[list[Row]]:
    """Fitted to the first 4000 rows of X with the settings that `tuning` found, reported on the last 1000.

    Ours also with no setting at all. scikit-learn's and ours are scored in turn, so that a noisy neighbour
    troubles all alike.
    """
    best: dict[str, Row] = {}
    for row in (r for r in tried if r["method"] in names):
        if row["method"] not in best or float(row["bits_per_dim"]) < float(
            best[row["method"]]["bits_per_dim"]
        ):
            best[row["method"]] = row
    jobs = [("GivensMixture", "default", ())] if "GivensMixture" in best else []
    for name, row in best.items():
        words = dict(part.split("=") for part in str(row["setting"]).split())
        numbers = [float(words[word]) for word in CONTENDERS[name].words]
        jobs.append((name, "tuned", tuple(int(v) if v >= 1 else v for v in numbers)))
    for dtype in BOTH:
        train, big = X[:4000].astype(dtype), np.tile(X[4000:5000], (5, 1)).astype(dtype)
        fitted = [(job, *_fitted(job, train)) for job in jobs if dtype in CONTENDERS[job[0]].dtypes]
        logs = [model.score_samples(big) for _, model, _ in fitted]
        score = lambda model, rows=big: timed(lambda: model.score_samples(rows)).cpu
        rounds = [[score(model) for _, model, _ in fitted] for _ in range(ROUNDS)]
        seconds = np.median(rounds, axis=0).tolist()
        yield [
            _described(job, model, log, fit, score, dtype)
            for (job, model, fit), log, score in zip(fitted, logs, seconds, strict=True)
        ]


def _fitted(job: tuple[str, str, tuple[Any, ...]], train: np.ndarray) -> tuple[Any, float]:
    make = CONTENDERS[job[0]].make
    if job[0].startswith("Givens"):
        make(2).set_params(n_components=2).fit(train[:200])  # compiles the kernels
    model, _, seconds = timed(lambda: make(STEPS, *job[2]).fit(train))
    return model, seconds


def _described(job: Any, model: Any, logs: np.ndarray, fit: float, score: float, dtype: str) -> Row:
    name, how, setting = job
    about = [how, _about(CONTENDERS[name], setting), f"steps={model.n_iter_}"]
    if name.startswith("Givens"):
        rotations = model.n_rotations_[0] if "tied" in name else sum(model.n_rotations_)
        about += [f"K={rotations}", f"noise={model.noise_:.3g}"]
        floats, size = model.n_parameters, 4 * model.n_parameters + 4 * rotations  # two 2-byte indices each
    else:
        floats = model.floats if isinstance(model, Rival) else int(model._n_parameters())
        size = 4 * floats
    return density_row("mixture", name, " ".join(filter(None, about)), logs, floats, size, fit, score, dtype)


def _about(contender: Contender, setting: tuple[Any, ...]) -> str:
    return " ".join(f"{word}={value:g}" for word, value in zip(contender.words, setting, strict=False))


def density_row(
    task: str,
    name: str,
    about: str,
    logs: np.ndarray,
    floats: int,
    size: int,
    fit: float,
    score: float,
    dtype: str = "float64",
) -> Row:
    """One line of the table."""
    values = {
        "task": task,
        "method": name,
        "setting": about,
        "dtype": dtype,
        "bits_per_dim": bits(logs),
        "worst_log_density": float(np.min(logs)),
        "floats": floats,
        "bytes": size,
        "share_of_full": floats / (FULL if task == "single" else K * FULL + K - 1),
        "fit_seconds": fit,
        "score_seconds": score,
    }
    shown = (f"{k}={v:.4g}" if isinstance(v, float) else str(v) for k, v in values.items())
    tqdm.write("  ".join(shown))
    return values
