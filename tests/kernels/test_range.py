"""Products over the whole range of the dtype, against an oracle that shares no code with the package."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cases import normal, random_angles

from swallowtail import Butterfly, SymmetricOperator
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.operators.rotation import Rotation


def layers_of(n, depth, reverse):
    """The layers of a butterfly, pair by pair, as the paper draws them."""
    bits = max(0, math.ceil(math.log2(n)))
    strides = [2**bit for bit in (range(bits) if reverse else reversed(range(bits)))] * depth
    return [[(i, i + p) for i in range(n - p) if not i & p] for p in strides]


def dense(n, layers, angles):
    """Q₁Q₂…Q_L, in NumPy's extended precision."""
    Q, k = np.eye(n, dtype=np.longdouble), 0
    for layer in layers:
        for i, j in layer:
            c, s = np.cos(np.longdouble(angles[k])), np.sin(np.longdouble(angles[k]))
            Q[:, i], Q[:, j] = Q[:, i] * c + Q[:, j] * s, Q[:, j] * c - Q[:, i] * s
            k += 1
    return Q


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "decades"), [(torch.float32, 30), (torch.float64, 150)])
def test_eigenvalues_of_many_magnitudes(reverse, dtype, decades):
    """Where the scales of fast Givens do not fit beside them, the plain form of the same wiring is prepared."""
    wiring = Butterfly(64, 4, reverse=reverse)
    angles, x = random_angles(wiring, 1, dtype=dtype), normal(1, 5, 64, dtype=dtype)
    d = torch.logspace(-decades, decades, 64, dtype=torch.float64)[None].to(dtype)
    Q = dense(64, layers_of(64, 4, reverse), angles[0].numpy())
    w = x[0].numpy() @ Q
    exact = (w * d[0].numpy()) @ Q.T
    error = np.abs(cpu.symmetric(wiring, angles, d, x)[0].numpy() - exact).max() / np.abs(exact).max()
    assert error <= 20 * torch.finfo(dtype).eps
    exact = (w * w * d[0].numpy()).sum(-1)
    error = np.abs(cpu.quadratic(wiring, angles, d, x)[0].numpy() - exact).max() / np.abs(exact).max()
    assert error <= 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("n", [3, 5, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_subnormal_eigenvalues(n, dtype):
    d = torch.full((n,), 1e-40 if dtype == torch.float32 else 1e-310, dtype=dtype)
    H = SymmetricOperator(Rotation.random(n, dtype=dtype, seed=0), d)
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert float((H @ torch.ones(n, dtype=dtype) - d).abs().max()) <= n * step
