"""The paper's identity: gradients on minibatches average to the one on all of the data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from swallowtail.experiments.algorithm2.problems import Problem, make_problem
from swallowtail.experiments.common.rows import Row
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs
from swallowtail.wiring import Butterfly


def loss_gradient(angles: np.ndarray, d: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∂L(ω̃, x, y)/∂ω̃ as one vector, for one sample on the paper's wiring."""
    n, pairs = len(x), unsigned_pairs(Butterfly(len(x)))
    gradient, by_d = np.empty((len(pairs), 4)), np.empty(n)
    work = np.empty((n, 1)), np.empty((n, 1))
    columns = x[:, None].copy(), y[:, None].copy()
    extended_gradient(pairs, np.cos(angles), np.sin(angles), d, *columns, False, gradient, by_d, *work)
    return np.concatenate([gradient.ravel(), by_d])


def identity_rows(sizes: tuple[int, ...], seed: int) -> list[Row]:
    """Do gradients of L on minibatches that make up the data average to the one on all of it?

    With mean losses and weights |A_i|/|A| they do. As printed, with summed losses and 1/|A| outside, Ĥδu comes
    p/|A| times instead of once, p the number of minibatches: a factor is lost.
    """
    total = sum(sizes)
    problem = make_problem("logistic", seed, total)
    rng = np.random.default_rng(seed)
    n = problem.size
    angles, d = rng.uniform(-np.pi, np.pi, Butterfly(n).n_rotations), rng.random(n)
    u, step = 0.1 * rng.standard_normal(n), 0.01 * rng.standard_normal(n)
    parts = torch.arange(total).split(list(sizes))
    changes = [_change(problem, u, step, part) for part in parts]
    whole = loss_gradient(angles, d, step, _change(problem, u, step, None))
    weighted = sum(m / total * loss_gradient(angles, d, step, c) for m, c in zip(sizes, changes, strict=True))
    printed = sum(loss_gradient(angles, d, step, m * c) for m, c in zip(sizes, changes, strict=True)) / total
    deviation = lambda g: float(np.linalg.norm(g - whole) / np.linalg.norm(whole))
    return [
        {"part": "identity", "average": "means, weights |A_i|/|A|", "deviation": deviation(weighted)},
        {"part": "identity", "average": "sums over |A|, as printed", "deviation": deviation(printed)},
    ]


def _change(problem: Problem, u: np.ndarray, step: np.ndarray, index: Tensor | None) -> np.ndarray:
    """δg on some rows of the data, of the mean loss."""
    gradients = []
    for point in (u + step, u):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(point), problem.params)
        parts = torch.autograd.grad(problem.loss(index), problem.params)
        gradients.append(torch.cat([g.reshape(-1) for g in parts]).numpy())
    return gradients[0] - gradients[1]
