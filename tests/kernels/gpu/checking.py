"""Random problems, and every function of the GPU back end against the reference in float64."""

from __future__ import annotations

import numpy as np
import torch
from interpreter import DEVICE

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.wiring import Wiring


def problem(
    wiring: Wiring, batch: int, m: int, dtype: torch.dtype = torch.float64, device: torch.device = DEVICE
):
    """Angles, eigenvalues, vectors and gradients; the first two in the dtype of the arithmetic."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    generator = torch.Generator().manual_seed(wiring.n)
    angles = (torch.rand(batch, wiring.n_rotations, generator=generator, dtype=torch.float64) * 2 - 1) * np.pi
    d = torch.randn(batch, wiring.n, generator=generator, dtype=torch.float64)
    x, grad = torch.randn(2, batch, m, wiring.n, generator=generator, dtype=torch.float64)
    return angles.to(device, wide), d.to(device, wide), x.to(device, dtype), grad.to(device, dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, bound: float, what: str) -> None:
    assert actual.shape == expected.shape, what
    error = (actual.double() - expected).norm() / expected.norm().clamp_min(1e-30)
    assert error <= bound, f"{what}: relative error {error:.2e}, expected at most {bound:.2e}"


def check(
    wiring: Wiring,
    batch: int,
    m: int,
    dtype: torch.dtype,
    bound: float,
    prepared: bool,
    device: torch.device = DEVICE,
) -> None:
    """Every function against the reference in float64 on the same numbers; ``prepared`` butterflies are fast."""
    angles, d, x, grad = problem(wiring, batch, m, dtype, device)
    tables = gpu.prepare(wiring, angles, d) if prepared else None
    exact_angles, exact_d, exact_x = (t.double() for t in (angles, d, x))
    for transpose in (False, True):
        y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
        assert y.dtype == dtype
        expected = reference.rotate(wiring, exact_angles, exact_x, transpose)
        assert_close(y, expected, bound, f"rotate {transpose=}")
        check_backward(wiring, angles, y, grad, transpose, tables, bound)
    actual = gpu.symmetric(wiring, angles, d, x, prepared=tables)
    assert actual.dtype == dtype
    assert_close(actual, reference.symmetric(wiring, exact_angles, exact_d, exact_x), bound, "symmetric")
    actual = gpu.quadratic(wiring, angles, d, x, prepared=tables)
    assert_close(actual, reference.quadratic(wiring, exact_angles, exact_d, exact_x), 4 * bound, "quadratic")


def check_backward(wiring, angles, y, grad, transpose, tables, bound) -> None:
    actual = gpu.rotate_backward(wiring, angles, y, grad, transpose, prepared=tables)
    expected = reference.rotate_backward(wiring, angles.double(), y.double(), grad.double(), transpose)
    for a, e, what in zip(actual, expected, ("gradient of x", "gradient of angles"), strict=True):
        assert_close(a, e, bound, f"{what} {transpose=}")
