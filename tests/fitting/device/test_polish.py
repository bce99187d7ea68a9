"""L-BFGS with an objective from elsewhere."""

import numpy as np
import pytest
import torch

from swallowtail.fitting.core.lbfgs import MEMORY
from swallowtail.fitting.device.polish import Memory, lbfgs

SCALE = torch.ones(3, dtype=torch.float64)


def quartic(x):
    first = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    return ((x - 1) ** 4).sum() + x[0] ** 2, 4 * (x - 1) ** 3 + 2 * first * x


def two_loops(g, scale, remembered):
    """The textbook's recursion over (step, change of gradient), oldest first."""
    p, alphas = -g, []
    for s, y in reversed(remembered):
        alphas.append(s @ p / (s @ y))
        p = p - alphas[-1] * y
    p = p * scale
    if remembered:
        s, y = remembered[-1]
        p = p * ((s @ y) / (y * scale @ y))
    for s, y in remembered:
        p = p + (alphas.pop() - y @ p / (s @ y)) * s
    return p


@pytest.mark.parametrize("count", [0, 1, 3, MEMORY, MEMORY + 5])
def test_directions_are_those_of_two_loops(count):
    rng = np.random.default_rng(count)
    scale, g = rng.uniform(0.5, 2, 20), rng.standard_normal(20)
    memory, remembered = Memory(torch.from_numpy(scale)), []
    for _ in range(count):
        s = rng.standard_normal(20)
        remembered.append((s, s * rng.uniform(0.5, 3, 20)))
        memory.add(*map(torch.from_numpy, remembered[-1]))
    expected = two_loops(g, scale, remembered[-MEMORY:])
    np.testing.assert_allclose(memory.direction(torch.from_numpy(g)), expected, rtol=1e-9, atol=1e-12)


def test_it_goes_down_reports_and_stops():
    start, seen = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64), []
    f, g = quartic(start)
    x, value = lbfgs(quartic, start, float(f), g, SCALE, 200, 1e-14, lambda x, f: seen.append(f))
    assert np.all(np.diff(seen) < 0)
    assert value == seen[-1]
    assert quartic(x)[1].abs().max() < 1e-4
    again, same = lbfgs(quartic, start, float(f), g, SCALE, 0, 1e-14)
    assert same == float(f)
    np.testing.assert_array_equal(again, start)


def test_a_minimum_is_left_alone():
    best = torch.tensor([0.4102454876985416, 1.0, 1.0], dtype=torch.float64)
    f, g = quartic(best)
    x, value = lbfgs(quartic, best, float(f), g, SCALE, 50, 1e-9)
    assert value <= float(f)
    np.testing.assert_allclose(x, best, atol=1e-6)
