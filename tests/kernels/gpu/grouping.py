"""Wirings in fixed groups, for tests."""

from __future__ import annotations

import numpy as np

from swallowtail.wiring import Grouped


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
