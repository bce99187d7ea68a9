"""The Gluon kernel for QR decompositions, compiled for an H200; `test_grouped` has its numbers on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")

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
