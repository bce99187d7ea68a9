"""The claims of the paper that fits can check: each function returns the rows of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.experiments.common.fits import as_operator
from swallowtail.experiments.common.rows import Row
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.rivals import equal_ranks, low_rank
from swallowtail.fitting.symmetric import fit_symmetric
from swallowtail.metrics import column_angles, error_angle
from swallowtail.operators.symmetric import SymmetricOperator

DEVIATION = 0.5  # of the eigenvalues around their mean, 1
REGION = 8  # dimensions of the region's subspace
OUTSIDE = 0.1  # standard deviation in all other directions, 1 in the subspace


def spectrum(n: int, kind: str, dimension: int) -> np.ndarray:  # shape: (n,)
    """Eigenvalues with mean 1 and standard deviation ½, whatever the eigenspaces: c·I is as good for all of them.

    Args:
        n: how many.
        kind: "equal" for eigenspaces of equal dimension, "one" for one large one beside distinct eigenvalues.
        dimension: of each, or of the large one.
    """
    if kind == "equal":
        values = np.arange(n) // dimension * 1.0
    else:
        values = np.concatenate([np.zeros(dimension), np.linspace(-1, 1, n - dimension)])
    return 1.0 + DEVIATION * (values - values.mean()) / values.std()


def eigenspace_rows(n: int, kind: str, dimension: int, epochs: int, seed: int) -> list[Row]:
    """Angles for a matrix with eigenspaces of that dimension."""
    R = random_orthogonal(n, seed)
    H = (R * spectrum(n, kind, dimension)) @ R.T
    H = 0.5 * (H + H.T)
    paper = as_operator(fit_sgd(H, epochs=epochs, seed=seed))
    ours = fit_symmetric(H, wiring="pairs", seed=seed).operator
    rank = equal_ranks(ours)["floats"]
    cuts = low_rank(H, [0, rank])
    contenders = {
        "Algorithm 1": paper,
        "ours": ours,
        "c·I": cuts[0],
        "c·I + low rank, equal floats": cuts[rank],
    }
    common = {"part": "eigenspaces", "n": n, "kind": kind, "dimension": dimension, "seed": seed}
    return [
        {**common, "method": name, "angle": error_angle(H, A, seed=seed + 1)}
        for name, A in contenders.items()
    ]


def probe_rows(n: int, n_large: int, epochs: int, seed: int) -> list[Row]:
    """Algorithm 1 trained on x from three places, its angle tested on x from each of them."""
    H = random_symmetric(n, n_large, seed)
    basis = np.linalg.qr(np.random.default_rng([seed, 1]).standard_normal((n, REGION)))[0]

    def region(k: int, rng: np.random.Generator) -> np.ndarray:
        return basis @ rng.standard_normal((REGION, k)) + OUTSIDE * rng.standard_normal((n, k))

    places: dict[str, Any] = {"sphere": "sphere", "cube": "cube", "region": region}
    draws: dict[str, Callable[..., np.ndarray]] = {
        "sphere": lambda k, rng: rng.standard_normal((n, k)),  # angles do not see lengths
        "cube": lambda k, rng: rng.uniform(-1, 1, (n, k)),
        "region": region,
    }
    rows = []
    for trained, inputs in places.items():
        operator = as_operator(fit_sgd(H, inputs=inputs, epochs=epochs, seed=seed))
        for tested, draw in draws.items():
            X = draw(2000, np.random.default_rng([seed, 2]))
            angle = float(column_angles(H @ X, operator @ X).mean())
            rows.append(
                {"part": "probes", "n": n, "trained": trained, "tested": tested, "angle": angle, "seed": seed}
            )
    return rows


def inverse_rows(n: int, n_large: int, shift: float, seed: int) -> list[Row]:
    """Angle to H⁻¹ when D is inverted, when D alone is fitted to H⁻¹, and when Q and D are."""
    H = random_symmetric(n, n_large, seed) + shift * np.eye(n)
    inverse = np.linalg.inv(H)
    inverse = 0.5 * (inverse + inverse.T)
    plain = fit_symmetric(H, wiring="pairs", seed=seed).operator
    aimed = fit_symmetric(H, wiring="pairs", target="inverse", seed=seed).operator
    Q = plain.rotation.to_dense()
    diagonal = (Q.T @ torch.from_numpy(inverse) @ Q).diagonal().clone()
    rank = equal_ranks(aimed)["floats"]
    contenders = {
        "inverting D": plain.inverse(),
        "D fitted to the inverse": SymmetricOperator(plain.rotation, diagonal),
        'target="inverse"': aimed.inverse(),
        "c·I + low rank of the inverse": low_rank(inverse, [rank])[rank],
    }
    common = {"part": "inverse", "n": n, "n_large": n_large, "shift": shift, "seed": seed}
    return [
        {**common, "method": name, "angle": error_angle(inverse, A, seed=seed + 1)}
        for name, A in contenders.items()
    ]
