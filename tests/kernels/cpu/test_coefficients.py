"""Fast Givens coefficients: as accurate as plain ones at any angle, and what they cost."""

import math

import numpy as np
import pytest
import torch
from cases import WIRINGS, assert_close, normal, tolerance
from cpu_checks import (
    EXTREME_ANGLES,
    IN_WIDE_DTYPES,
    ON_DEEP,
    error,
)

from swallowtail import Butterfly, Pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu

EXTREME_EIGENVALUES = {
    "ordinary": lambda n: normal(n, seed=5),
    "1e-30 to 1e30": lambda n: torch.logspace(-30, 30, n, dtype=torch.float64),
    "1e-30 to 1": lambda n: torch.logspace(0, -30, n, dtype=torch.float64),
    "tiny": lambda n: 1e-35 * (1 + torch.rand(n, dtype=torch.float64)),
    "huge": lambda n: 1e35 * (1 + torch.rand(n, dtype=torch.float64)),
    "zero": lambda n: torch.zeros(n, dtype=torch.float64),
    "some zero": lambda n: normal(n, seed=5) * (torch.arange(n) % 3 == 0),
    "negative": lambda n: -normal(n, seed=5).abs(),
}


def extended_rotate(wiring, angles, x, transpose):
    """Q x for rows of x in NumPy's extended precision: more exact than float64 where the platform has it."""
    theta, y = (t.numpy().astype(np.longdouble) for t in (angles, x))
    c, s = np.cos(theta), np.sin(-theta if transpose else theta)
    for index in range(wiring.n_layers) if transpose else reversed(range(wiring.n_layers)):
        here = slice(wiring.offsets[index], wiring.offsets[index + 1])
        i, j = wiring.layer(index).T
        a, b = y[:, i].copy(), y[:, j].copy()
        y[:, i], y[:, j] = c[here] * a - s[here] * b, s[here] * a + c[here] * b
    return y


def no_worse(fast, plain, exact, dtype, n_layers):
    """The fast form's error is at most twice the plain form's; below half a rounding both are as good as exact.

    In float64 it is four times: coefficients are made in float64, and a fast one takes six roundings (cos, sin,
    tangent, scale, ratio, product) where a plain one takes two. Equal angles round alike, which adds them up.
    """
    exact = np.asarray(exact, np.longdouble)
    errors = error(fast, exact), error(plain, exact)
    factor = 2 if dtype == torch.float32 else 4
    floor = torch.finfo(dtype).eps * math.sqrt(n_layers) / 4
    assert errors[0] <= max(factor * errors[1], floor), "fast {:.3g}, plain {:.3g}".format(*errors)


@ON_DEEP
@pytest.mark.parametrize("kind", EXTREME_ANGLES)
@IN_WIDE_DTYPES
def test_fast_rotations_are_as_accurate_as_plain_ones(wiring, kind, dtype):
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].to(dtype)
    x = normal(1, 20, wiring.n, dtype=dtype)
    plain = cpu.prepare(wiring, angles, fast=False)
    # Equal angles have equal coefficients, rounded alike: errors, up to eps/4 per layer, add up in one direction.
    together = wiring.n_layers / 4 * torch.finfo(dtype).eps if len(angles.unique()) < angles.numel() else 0.0
    for transpose in (False, True):
        fast = cpu.rotate(wiring, angles, x, transpose)
        exact = extended_rotate(wiring, angles[0], x[0], transpose)[None]
        no_worse(
            fast, cpu.rotate(wiring, angles, x, transpose, prepared=plain), exact, dtype, wiring.n_layers
        )
        assert error(fast, exact) <= tolerance(dtype, wiring.n_layers) + together


@ON_DEEP
@pytest.mark.parametrize("spectrum", EXTREME_EIGENVALUES)
@pytest.mark.parametrize("kind", ["right", "nearly right", "hadamard", "large", "mixed"])
def test_fast_products_are_as_accurate_as_plain_ones(wiring, kind, spectrum):
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].float()
    d = EXTREME_EIGENVALUES[spectrum](wiring.n)[None].float()
    x = normal(1, 20, wiring.n, dtype=torch.float32)
    plain = cpu.prepare(wiring, angles, d, fast=False)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    results = [cpu.symmetric(wiring, angles, d, x), cpu.symmetric(wiring, angles, d, x, prepared=plain)]
    no_worse(*results, exact, torch.float32, 2 * wiring.n_layers)
    exact = reference.quadratic(wiring, angles.double(), d.double(), x.double())
    results = [cpu.quadratic(wiring, angles, d, x), cpu.quadratic(wiring, angles, d, x, prepared=plain)]
    no_worse(*results, exact, torch.float32, 2 * wiring.n_layers)


@pytest.mark.parametrize("tiny", [1e-20, 1e-30])
def test_small_eigenvalues_keep_their_own_accuracy(tiny):
    """Two blocks that never meet, one of them 1e30 or more times as large: each block's own error is small."""
    wiring = Pairs(4, [[(0, 1), (2, 3)]] * 90)
    angles = torch.full((1, wiring.n_rotations), math.pi / 4 + 0.01)
    d = torch.tensor([[tiny, 2 * tiny, 1e10, 2e10]])
    x = normal(1, 3, 4, dtype=torch.float32)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    actual = cpu.symmetric(wiring, angles, d, x)
    for block in (slice(0, 2), slice(2, 4)):
        assert_close(actual[..., block], exact[..., block], tolerance(torch.float32, 2 * wiring.n_layers))


@pytest.mark.parametrize("n", [64, 100, 1024])
@IN_WIDE_DTYPES
def test_multiply_adds_of_a_butterfly(n, dtype):
    wiring = Butterfly(n)
    K = sum(len(layer) for layer in wiring.layers())

    def count(theta, form, wiring=wiring, eigenvalue=1.0):
        angles = torch.full((1, K), theta, dtype=dtype)
        return cpu.multiply_adds(
            wiring, cpu.prepare(wiring, angles, torch.full((1, n), eigenvalue, dtype=dtype)), form
        )

    assert count(0.3, "rotate") == 2 * K + n
    assert count(0.3, "symmetric") == 4 * K + n
    assert count(0.3, "quadratic") == 2 * K + 2 * n
    assert count(math.pi / 2, "rotate") == 4 * K  # cos 90° is no divisor: plain everywhere, no scales left
    assert count(math.pi / 2, "symmetric") == 8 * K + n
    assert count(math.pi / 2, "quadratic") == 4 * K + 2 * n
    assert count(0.3, "symmetric", wiring.T) == 4 * K + 3 * n  # two kernels with a scaling each, and D


def test_multiply_adds_of_pairs():
    wiring = WIRINGS["pairs-64"]
    K, n = len(wiring.pairs), 64
    angles = torch.full((1, K), 0.3)
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles)) == 2 * K + n
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles, torch.ones(1, n)), "symmetric") == 4 * K + n
    angles[0, 5] = math.pi / 2  # one rotation costs two more
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles)) == 2 * K + 2 + n
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, torch.zeros(1, K))) == 2 * K  # all scales are 1


def test_deep_butterflies_pay_for_few_plain_passes():
    """Scales shrink by √½ a layer: one pass in many must set them back to 1, the others stay fast."""
    wiring = Butterfly(1024, 16)
    K, n = wiring.n_rotations, wiring.n
    count = cpu.multiply_adds(wiring, cpu.prepare(wiring, torch.full((1, K), math.pi / 4)))
    assert 2 * K + n < count < 2.5 * K
