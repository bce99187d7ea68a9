"""Wirings in groups, and a walk through the steps of a plan, for tests."""

from __future__ import annotations

import numpy as np
import torch

from swallowtail.kernels import reference
from swallowtail.wiring import Grouped, Pairs

HUB = Pairs(40, [[(0, k), (20 + k, 39 - k)] for k in range(1, 9)])  # one coordinate meets many


def fixed_groups(n: int, size: int, rounds: int) -> Grouped:
    """Every coordinate meets another of its group in each round; the last group may be shorter."""
    generator = np.random.default_rng(n)
    groups = [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
    mixed = lambda group: generator.permutation(group)[: len(group) // 2 * 2].reshape(-1, 2)
    return Grouped(n, [[(group, mixed(group)) for group in groups] for _ in range(rounds)])


def free_groups(n: int, size: int, rounds: int) -> Grouped:
    """New groups in every round, with as many rotations as coordinates."""
    generator = np.random.default_rng(n)

    def one_round():
        mixed = generator.permutation(n)
        for start in range(0, n - size + 1, size):
            group = mixed[start : start + size]
            yield group, [generator.choice(group, 2, replace=False) for _ in range(size)]

    return Grouped(n, [list(one_round()) for _ in range(rounds)])


def check_steps(plan, wiring) -> None:
    """Walk through the steps of a plan in NumPy: together they are Qᵀ."""
    theta = np.linspace(-3, 3, wiring.n_rotations)
    x = np.random.default_rng(0).normal(size=wiring.n)
    rows = torch.tensor(x)[None, None]
    expected = reference.rotate(wiring, torch.tensor(theta)[None], rows, True)[0, 0].numpy()
    for q, coordinates in enumerate(plan.coordinates):
        inside = coordinates >= 0
        y = np.where(inside, x[coordinates], 0.0)
        for partner, angle in zip(plan.partner[:, q], plan.angle[:, q], strict=True):
            t = np.where(angle != 0, theta[np.abs(angle) - 1], 0.0)
            y = np.cos(t) * y - np.sign(angle) * np.sin(t) * y[partner]
        x[coordinates[inside]] = y[inside]
    np.testing.assert_allclose(x, expected, atol=1e-13)
