"""The compiled arithmetic does what the tensors' does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swallowtail.optim.lbfgs import compiled, iteration, memory
from swallowtail.optim.lbfgs.iteration import direction
from swallowtail.optim.lbfgs.memory import learn, new_memory, precondition
from swallowtail.optim.lbfgs.settings import Settings

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def learned(n, dtype, kind, samples=13):
    """A memory of samples of a quadratic, and a vector."""
    generator = torch.Generator().manual_seed(n)
    curvature = torch.logspace(-2, 1, n, dtype=dtype)
    settings = Settings(preconditioner=kind, history_size=5)
    found = new_memory(curvature, 5)
    for _ in range(samples):
        s = torch.randn(n, generator=generator, dtype=dtype)
        learn(found, s, curvature * s + 0.1 * curvature.mean() * s.roll(1), settings)
    return found, torch.randn(n, generator=generator, dtype=dtype), settings


@DTYPES
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
@pytest.mark.parametrize("kind", ["rotated", "diagonal", "random", "none"])
def test_both_ways_agree(n, dtype, kind, monkeypatch):
    found, x, settings = learned(n, dtype, kind)
    found["gate"].fill_(1.0)
    turned, step = precondition(found, x), direction(found, x, settings)
    monkeypatch.setattr(memory, "is_compiled", lambda x: False)
    monkeypatch.setattr(iteration, "is_compiled", lambda x: False)
    other, _, _ = learned(n, dtype, kind)
    other["gate"].fill_(1.0)
    bound = 1e-9 if dtype == torch.float64 else 2e-3
    for key in ("angles", "inverse_eigenvalues"):
        torch.testing.assert_close(found[key], other[key], rtol=bound, atol=bound)
    torch.testing.assert_close(turned, precondition(other, x), rtol=bound, atol=bound)
    torch.testing.assert_close(step, direction(other, x, settings), rtol=10 * bound, atol=10 * bound)


def test_the_largest_entry_shows_what_is_not_finite():
    assert compiled.largest(np.array([1.0, -3.0, 2.0])) == 3.0
    assert compiled.largest(np.zeros(0)) == 0.0
    assert np.isnan(compiled.largest(np.array([1.0, np.nan, 9.0])))
    assert compiled.largest(np.array([-np.inf, 1.0])) == np.inf
