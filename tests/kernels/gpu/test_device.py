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
