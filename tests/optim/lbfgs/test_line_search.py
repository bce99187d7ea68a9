"""The strong Wolfe line search."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim.lbfgs.line_search import Trial, strong_wolfe


@pytest.mark.parametrize("first", [1e-6, 0.1, 1.0, 50.0, 1e6])
@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda t: (t - 2) ** 2, lambda t: 2 * (t - 2)),
        (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),  # Moré & Thuente's first
        (
            lambda t: (t + 0.004) ** 5 - 2 * (t + 0.004) ** 4,
            lambda t: 5 * (t + 0.004) ** 4 - 8 * (t + 0.004) ** 3,
        ),
        (lambda t: float("nan") if t > 3 else -t + t**4 / 40, lambda t: -1 + t**3 / 10),
    ],
)
def test_line_search_satisfies_strong_wolfe(f, slope, first):
    phi = lambda t: Trial(t, f(t), slope(t), torch.zeros(1), torch.zeros(1))
    found, count = strong_wolfe(phi, phi(0.0), first, c2=0.5, max_evaluations=60)
    assert found is not None
    assert found.f <= f(0.0) + 1e-4 * found.t * slope(0.0)
    assert abs(found.slope) <= 0.5 * abs(slope(0.0))
    assert count <= 60


def test_line_search_without_descent_gives_up():
    phi = lambda t: Trial(t, t, -1.0 if t == 0 else 1.0, torch.zeros(1), torch.zeros(1))  # a slope that lies
    assert strong_wolfe(phi, phi(0.0), 1.0, max_evaluations=10)[0] is None
