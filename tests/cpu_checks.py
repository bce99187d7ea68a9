"""What the tests of the CPU kernels share: cases, checks against the reference, processes of their own."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from cases import DTYPES, FEW, HALF, WIDE, WIRINGS, arithmetic, assert_close, normal, random_angles, tolerance

from swallowtail import Butterfly, Pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu

EVERY = pytest.mark.parametrize("name", WIRINGS)


SOME = pytest.mark.parametrize("name", FEW)


ROWS = pytest.mark.parametrize("m", [0, 1, 2, 3, 33])


IN_EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


IN_WIDE_DTYPES = pytest.mark.parametrize("dtype", WIDE, ids=str)


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


def check_all(wiring, dtype, B, m):
    """Every function of the back end, and both its gradients, against the reference in float64."""
    angles, d, x, g = inputs(wiring, dtype, B, m)
    angles64, d64, x64, g64 = doubles(angles, d, x, g)
    layers, what = wiring.n_layers, f"{wiring!r}, {dtype}, B={B}, m={m}"
    for transpose in (False, True):
        y = cpu.rotate(wiring, angles, x, transpose)
        assert y.dtype == dtype
        y64 = reference.rotate(wiring, angles64, x64, transpose)
        assert_close(y, y64, tolerance(dtype, layers), f"rotate, transpose={transpose}: {what}")
        stored = y64.to(dtype)
        grad_x, grad_angles = cpu.rotate_backward(wiring, angles, stored, g, transpose)
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
    H = cpu.symmetric(wiring, angles, d, x)
    assert H.dtype == dtype
    assert_close(
        H, reference.symmetric(wiring, angles64, d64, x64), tolerance(dtype, 2 * layers), f"symmetric: {what}"
    )
    q = cpu.quadratic(wiring, angles, d, x)
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


def nearly_right(n_rotations, generator):
    """Angles within 1e-8 … 1e-1 of 90°."""
    distance = 10.0 ** -(1 + 7 * torch.rand(n_rotations, generator=generator, dtype=torch.float64))
    sign = torch.randint(0, 2, (n_rotations,), generator=generator) * 2 - 1
    return sign * (math.pi / 2 - distance)


def mixed(n_rotations, generator):
    kinds = [torch.zeros(n_rotations), torch.full((n_rotations,), math.pi / 2), nearly_right(n_rotations, generator),
             torch.full((n_rotations,), math.pi / 4), torch.rand(n_rotations, generator=generator) * 6 - 3]  # fmt: skip
    choice = torch.randint(0, len(kinds), (n_rotations,), generator=generator)
    return torch.stack([kind.double() for kind in kinds])[choice, torch.arange(n_rotations)]


EXTREME_ANGLES = {
    "zero": lambda k, g: torch.zeros(k, dtype=torch.float64),
    "right": lambda k, g: torch.full((k,), math.pi / 2, dtype=torch.float64),
    "minus right": lambda k, g: torch.full((k,), -math.pi / 2, dtype=torch.float64),
    "nearly right": nearly_right,
    "half turns": lambda k, g: torch.full((k,), math.pi, dtype=torch.float64),
    "hadamard": lambda k, g: torch.full((k,), math.pi / 4, dtype=torch.float64),
    "sixty degrees": lambda k, g: torch.full((k,), math.pi / 3, dtype=torch.float64),
    "large": lambda k, g: 1000 * torch.randn(k, generator=g, dtype=torch.float64),
    "mixed": mixed,
}


DEEP = {"butterfly": Butterfly(64, 16), "butterfly-odd": Butterfly(100, 6), "pairs": Pairs(24, list(
    np.random.default_rng(0).permuted(np.tile(np.arange(24), (80, 1)), axis=1).reshape(80, 12, 2)))}  # fmt: skip


ON_DEEP = pytest.mark.parametrize("wiring", DEEP.values(), ids=DEEP.keys())


def error(actual, exact):
    """Relative, in norm, in extended precision."""
    difference = actual.numpy().astype(np.longdouble) - exact
    return float(np.sqrt((difference**2).sum() / np.maximum((exact**2).sum(), np.finfo(np.longdouble).tiny)))


def environment(**changes):
    """This process's environment, with the package importable and one thread."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        **changes,
    }


def run_program(program, *arguments, timeout=120, warnings="error", **changes):
    """Run Python source in a process of its own. Returns what `subprocess.run` does, with text."""
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", program, *arguments],
        env=environment(**changes), capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
