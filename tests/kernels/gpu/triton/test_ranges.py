"""Products of butterflies with vectors and eigenvalues from the whole range of float32, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from interpreter import DEVICE, needs_gluon, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.wiring import Butterfly

STEP = 2.0**-149  # between subnormal numbers
LARGEST = torch.finfo(torch.float32).max
WIRINGS = [Butterfly(6, 3), Butterfly(16, 4, reverse=True), Butterfly(100)]
# Minutes in the interpreter.
LONG = [pytest.param(Butterfly(n), marks=needs_gluon) for n in (600, 1024, 4096, 9000)]


def check(actual, exact, scale, what):
    """Where the exact result fits, each vector is off by 1e-6 of its natural scale, or by n subnormal steps."""
    actual, n = actual.double().cpu(), exact.shape[-1]
    fits = exact.abs().amax(-1) < LARGEST / 2
    error = (actual - exact).norm(dim=-1)
    assert (error <= 1e-6 * scale + n * STEP)[fits].all(), (what, error, scale)


@needs_kernels
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("wiring", [*WIRINGS, *LONG], ids=repr)
@np.errstate(all="ignore")  # the interpreter's arithmetic: some results are too large
def test_any_size_of_vectors_and_eigenvalues(wiring, prepared):
    angles, d, x, _ = problem(wiring, 1, 5, torch.float32)
    # One size per vector. Where there are several passes, subnormal numbers lose digits between them.
    sizes = torch.tensor([1e-44 if wiring.n <= 4096 else 1e-35, 1e-36, 1.0, 1e30, 3e37], device=DEVICE)
    x = x * sizes[:, None] / 4
    exact = angles.double().cpu(), x.double().cpu()
    tables = gpu.prepare(wiring, angles) if prepared else None
    for transpose in (False, True):
        y = gpu.rotate(wiring, angles, x, transpose, tables)
        check(y, reference.rotate(wiring, *exact, transpose), exact[1].norm(dim=-1), f"{transpose=}")
    for size in (1e-30, 1.0, 1e30):
        scaled = d * size
        exact_d, largest = scaled.double().cpu(), float(scaled.abs().max())
        tables = gpu.prepare(wiring, angles, scaled) if prepared else None
        y = gpu.symmetric(wiring, angles, scaled, x, tables)
        expected = reference.symmetric(wiring, exact[0], exact_d, exact[1])
        check(y, expected, largest * exact[1].norm(dim=-1), f"symmetric {size}")
        q = gpu.quadratic(wiring, angles, scaled, x, tables)[..., None]
        expected = reference.quadratic(wiring, exact[0], exact_d, exact[1])[..., None]
        check(q, expected, 4 * largest * exact[1].norm(dim=-1) ** 2, f"quadratic {size}")


@needs_kernels
def test_what_is_not_finite_stays_so():
    wiring = Butterfly(8)
    angles, _, x, _ = problem(wiring, 1, 3, torch.float32)
    x[0, 0, 2], x[0, 1, 5] = math.inf, math.nan
    y = gpu.rotate(wiring, angles, x).cpu()
    assert not torch.isfinite(y[0, :2]).any()
    assert torch.isfinite(y[0, 2]).all()
