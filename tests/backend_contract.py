"""What every back end must do, stated once: the reference's numbers in float64, up to the roundings of its dtype."""

from __future__ import annotations

import torch
from cases import HALF, arithmetic, assert_close, normal, random_angles, tolerance

from swallowtail.kernels import reference


def inputs(wiring, dtype, B=1, m=5):
    """Angles and eigenvalues in the dtype of arithmetic, x and a cotangent in that of storage."""
    wide = arithmetic(dtype)
    return (
        random_angles(wiring, B, dtype=wide),
        normal(B, wiring.n, dtype=wide, seed=2),
        normal(B, m, wiring.n, dtype=dtype, seed=3),
        normal(B, m, wiring.n, dtype=dtype, seed=4),
    )


def doubles(*tensors):
    return [t.double() for t in tensors]


def check_backend(backend, wiring, dtype, B, m):
    """Every product of a back end's module, and both its gradients, for B rotations of m vectors each."""
    angles, d, x, g = inputs(wiring, dtype, B, m)
    angles64, d64, x64, g64 = doubles(angles, d, x, g)
    layers, what = wiring.n_layers, f"{wiring!r}, {dtype}, B={B}, m={m}"
    for transpose in (False, True):
        y = backend.rotate(wiring, angles, x, transpose)
        assert y.dtype == dtype
        y64 = reference.rotate(wiring, angles64, x64, transpose)
        assert_close(y, y64, tolerance(dtype, layers), f"rotate, transpose={transpose}: {what}")
        stored = y64.to(dtype)
        grad_x, grad_angles = backend.rotate_backward(wiring, angles, stored, g, transpose)
        expected_x, expected_angles = reference.rotate_backward(
            wiring, angles64, stored.double(), g64, transpose
        )
        assert (grad_x.dtype, grad_angles.dtype) == (dtype, angles.dtype)
        assert_close(grad_x, expected_x, tolerance(dtype, layers), f"grad_x, transpose={transpose}: {what}")
        # A wedge product of m rows is a sum of terms of size |y||g|, which may cancel.
        size = float((stored.double().norm(dim=-1) * g64.norm(dim=-1)).sum()) if m else 0.0
        worst = float((grad_angles.double() - expected_angles).abs().max()) if angles.numel() else 0.0
        assert worst <= tolerance(arithmetic(dtype), layers) * size, (
            f"grad_angles, transpose={transpose}: {what}"
        )
    H = backend.symmetric(wiring, angles, d, x)
    assert H.dtype == dtype
    assert_close(
        H, reference.symmetric(wiring, angles64, d64, x64), tolerance(dtype, 2 * layers), f"symmetric: {what}"
    )
    q = backend.quadratic(wiring, angles, d, x)
    assert q.dtype == dtype
    assert q.shape == (B, m)
    expected = reference.quadratic(wiring, angles64, d64, x64)
    size = reference.quadratic(wiring, angles64, d64.abs(), x64)  # without the cancellation of signs
    # Twice the tolerance of w: it is squared. A narrow dtype adds its own rounding of the result.
    bound = 2 * tolerance(arithmetic(dtype), layers) * size
    if dtype in HALF:
        spacing = torch.finfo(dtype).eps * torch.finfo(dtype).smallest_normal  # of subnormal numbers
        bound = bound + torch.finfo(dtype).eps * expected.abs() + spacing
    assert ((q.double() - expected).abs() <= bound).all(), f"quadratic: {what}"
