"""Distances and second moments on tiles of rows, against NumPy in float64."""

import numpy as np
import pytest
import torch
from cases import WIRINGS, random_angles

from swallowtail.kernels import reference
from swallowtail.kernels.cpu import distances as cpu_distances
from swallowtail.kernels.cpu.coefficients import prepare, tile

ROWS = pytest.mark.parametrize("m", [1, 5, 32, 100])


def problem(name, m, dtype):
    wiring = WIRINGS[name]
    angles = random_angles(wiring, 1, dtype=dtype)
    c = prepare(wiring, angles)[0]
    rng = np.random.default_rng(0)
    X, centre = rng.standard_normal((m, wiring.n)), rng.standard_normal(wiring.n)
    number = c.T.dtype
    return wiring, angles, c, X.astype(number), centre.astype(number), rng


def unscaled(wiring, angles, c, rows):
    """M x = S⁻¹ Qᵀ x in float64."""
    rotated = reference.rotate(wiring, angles.double(), torch.from_numpy(rows)[None].double(), True)[
        0
    ].numpy()
    S = np.asarray(getattr(c, "S", None) if hasattr(c, "S") else c.scale, np.float64)
    return rotated / S


@ROWS
@pytest.mark.parametrize("name", ["pairs-3", "pairs-17", "pairs-100"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_to_several_centres(name, m, dtype):
    wiring, angles, c, X, centre, rng = problem(name, m, dtype)
    number, n, k = X.dtype, wiring.n, 3
    a, b = (rng.standard_normal((k, n)).astype(number) for _ in range(2))
    for tied in (True, False):
        parts = 1 if tied else k
        offsets = np.arange(parts + 1) * wiring.n_rotations
        tables = [np.concatenate([t] * parts) for t in (wiring.pairs, c.T, c.P, c.plain)]
        out = np.full((m, k), np.nan, number)
        cpu_distances.distances(X, centre, a, b, *tables, offsets, tile(n, number), tile(n, number), out)
        rotated = unscaled(wiring, angles, c, X.astype(np.float64) - centre)
        expected = ((a * rotated[:, None] - b) ** 2).sum(-1)
        np.testing.assert_allclose(out, expected, rtol=2e-5 if number == np.float32 else 1e-12)


@ROWS
@pytest.mark.parametrize("name", ["pairs-3", "pairs-17", "pairs-100"])
def test_second_moments_along_the_axes(name, m):
    wiring, angles, c, X, centre, rng = problem(name, m, torch.float64)
    n = wiring.n
    a, r = rng.standard_normal(n), rng.uniform(0, 1, m)
    out = np.ones(n)  # it adds to what is there
    cpu_distances.second_moments(
        X, r, centre, a, wiring.pairs, c.T, c.P, c.plain, tile(n, X.dtype), tile(n, X.dtype), out
    )
    expected = 1 + (r[:, None] * (a * unscaled(wiring, angles, c, X - centre)) ** 2).sum(0)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
