"""The Gluon kernel for QR decompositions, compiled for an H200 and emulated; `test_grouped` has its numbers on one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from emulator.h200 import emulate

from swallowtail.optim.adam.gpu import group_kernels
from swallowtail.optim.adam.gpu.orthogonal import gram_schmidt_kernel
from swallowtail.optim.adam.state import SHIFT


@needs_compiler
@pytest.mark.parametrize("size", [16, 128])
def test_compiled(size):
    constants = {"FURTHER": False, "SIZE": size, "WARPS": size // 16}
    kinds = {"numbers_ptr": "*fp64", "group_ptr": "*i64"}
    found = compile_for_h200(gram_schmidt_kernel, size // 16, constants, kinds)
    assert found.metadata.shared == 8 * size  # two columns, and nothing is exchanged otherwise
    assert "local" not in found.asm["ptx"]


@needs_compiler
@pytest.mark.parametrize(("size", "used"), [(16, 16), (128, 20)])
@pytest.mark.parametrize("apart", [False, True])
def test_emulated(size, used, apart):
    """Q of the QR decomposition, with a positive diagonal of R; a column of zeros becomes the identity's."""
    draws = np.random.default_rng(size)
    x = torch.zeros(2, size, size)
    x[:, :used, :used] = torch.from_numpy(
        draws.normal(size=(2, used, used)) * 10.0 ** draws.integers(-3, 4, used)
    )
    x[1, :, 3] = 0.0
    q = torch.full((2, size, size), torch.nan)
    groups = torch.zeros(2, group_kernels.GROUP_WIDTH.value, dtype=torch.int64)
    groups[:, group_kernels.GROUP_SIZE.value] = used
    numbers = torch.zeros(1, group_kernels.N_NUMBERS.value, dtype=torch.float64)
    numbers[0, group_kernels.FIT.value] = numbers[0, group_kernels.USED.value] = 1
    constants = {"FURTHER": False, "SIZE": size, "WARPS": size // 16}
    emulate(gram_schmidt_kernel, (2,), (x, q, groups, numbers, size), size // 16, constants, apart)
    for found, given in zip(
        q[:, :used, :used].double().numpy(), x[:, :used, :used].double().numpy(), strict=True
    ):
        given = np.where((given == 0).all(axis=0), np.eye(used), given)
        Q, R = np.linalg.qr(given)
        np.testing.assert_allclose(found, Q * np.sign(np.diagonal(R)), atol=2e-5)
        np.testing.assert_allclose(found.T @ found, np.eye(used), atol=2e-6)
    assert torch.isnan(q[:, used:]).all()


@pytest.mark.parametrize("large", [1, 3, 128])
def test_twice_is_enough(large):
    """The kernel's steps in float32 on the worst that moments can be: few large eigenvalues, the rest none."""
    draws = np.random.default_rng(large)
    Q = np.linalg.qr(draws.normal(size=(128, 128)))[0]
    C = (Q[:, :large] @ Q[:, :large].T).astype(np.float32)
    x = C + np.float32(SHIFT * np.trace(C) / 128) * np.eye(128, dtype=np.float32)
    x /= np.abs(x).max(0)
    for _ in range(2):
        for k in range(128):
            c = x[:, k].copy()
            share = (c @ x) / (c @ c)
            share[k], share[:k] = 1 - 1 / np.sqrt(c @ c), 0
            x = x - c[:, None] * share
    assert np.abs(x.T @ x - np.eye(128)).max() < 2e-6
