"""The one place that decides whether GivensAdam's GPU kernels are used."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from interpreter import DEVICE, needs_kernels

from swallowtail.kernels import use_backend
from swallowtail.optim.adam.gpu import gpu_for


def test_none_on_a_cpu():
    assert gpu_for(torch.zeros(3)) is None
    with use_backend("reference"):
        assert gpu_for(torch.zeros(3)) is None


def test_a_step_on_a_cpu_does_not_import_the_launcher():
    script = (
        "import sys, torch, swallowtail\n"
        "p = torch.nn.Parameter(torch.ones(3, 4)); p.grad = torch.ones(3, 4)\n"
        "swallowtail.optim.GivensAdam([p], wiring='butterfly').step()\n"
        "assert 'swallowtail.optim.adam.gpu.launch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


@needs_kernels
def test_the_launcher_on_a_gpu():
    pytest.importorskip("triton")
    with use_backend("gpu"):
        assert gpu_for(torch.zeros(3, device=DEVICE)).__name__ == "swallowtail.optim.adam.gpu.launch"
