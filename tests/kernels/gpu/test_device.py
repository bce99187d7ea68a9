"""What a device offers to a launch."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import device


def test_the_interpreter_is_a_small_device_without_gluon():
    assert device.multiprocessors(torch.device("cpu")) == 2
    assert not device.runs_gluon(torch.zeros(1))


@pytest.mark.gpu
def test_a_gpu_has_multiprocessors_and_shared_memory():
    where = torch.device("cuda", 0)
    assert device.multiprocessors(where) > 2
    assert device.shared_memory(where) >= 48 << 10
    assert device.runs_gluon(torch.zeros(1, device=where)) == (torch.version.hip is None)


def test_products_of_float32_are_as_exact_as_pytorch_is_told():
    before = torch.get_float32_matmul_precision()
    try:
        for setting, expected in (("high", "tf32"), ("medium", "tf32"), ("highest", "tf32x3")):
            torch.set_float32_matmul_precision(setting)
            assert device.float32_products() == expected
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_newer_setting_counts_too():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError, match="mix"):
            torch.get_float32_matmul_precision()
        assert device.float32_products() == "tf32"
        matmul.fp32_precision = "ieee"
        assert device.float32_products() == "tf32x3"
    finally:
        matmul.fp32_precision = before
