"""QR decompositions of groups; `test_grouped` has the steps.

On the GPU where there is one, else in Triton's interpreter (`interpreter.py`).
"""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.optim.adam.gpu import group_kernels, matrices
from swallowtail.optim.adam.state import DeviceNumbers, Numbers


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


@needs_kernels
def test_orthogonal_is_the_q_of_a_qr_decomposition():
    draws = torch.Generator().manual_seed(1)
    x = torch.zeros(5, 16, 16, device=DEVICE)
    x[:, :9, :9] = torch.randn(5, 9, 9, generator=draws).to(DEVICE)
    x[1, :, 4], x[2] = 0, 0  # a column of nothing; nothing at all
    x[3] = 1e-18 * x[0]  # squares underflow
    groups = torch.zeros(5, group_kernels.GROUP_WIDTH.value, dtype=torch.int64, device=DEVICE)
    groups[:, group_kernels.GROUP_SIZE.value] = 9
    groups[4, group_kernels.GROUP_ROW.value] = 1  # which does not fit
    numbers = torch.zeros(2, len(Numbers._fields), dtype=torch.float64, device=DEVICE)
    numbers[:, DeviceNumbers.index("used")], numbers[0, DeviceNumbers.index("fit")] = 1, 1
    found = torch.zeros_like(x)
    matrices.orthogonal(x, found, groups, numbers)
    assert not found[4].any()
    found, x = found[:4, :9, :9], x[:4, :9, :9]
    eye = torch.eye(9, device=DEVICE)
    assert torch.allclose(found.mT @ found, eye.expand(4, 9, 9), atol=1e-5)
    upper = found.mT @ x
    assert torch.allclose(upper.tril(-1), torch.zeros_like(upper), atol=1e-5)
    assert (upper[0].diagonal() > 0).all()
    assert torch.equal(found[2], eye)
    assert torch.allclose(found[3], found[0], atol=1e-5)


@pytest.mark.parametrize(("s", "expected"), [(3, 16), (16, 16), (17, 32), (128, 128)])
def test_sizes_that_tensor_cores_take(s, expected):
    assert matrices.power(s) == expected
