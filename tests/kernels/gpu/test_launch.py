"""Which launches may share a binary."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import launch as gpu_launch
from swallowtail.kernels.gpu.launch import _kinds, launch


def test_what_triton_compiles_apart_is_told_apart():
    x = torch.zeros(8)
    kinds = [_kinds((a,)) for a in (1, 16, 7, 2**31, 2**31 + 1, 1.0, x, x[1:], x.double())]
    assert all(a != b for i, a in enumerate(kinds) for b in kinds[:i])


def test_other_values_of_a_kind_are_not():
    x = torch.zeros(8)
    for one, other in ((16, 32), (7, 9), (1.0, 16.0), (x, x[4:])):
        assert _kinds((one,)) == _kinds((other,))


class Compiler:
    """Stands for a Triton kernel: compiles a binary a launch and notes what that is launched with."""

    def __init__(self):
        self.binaries = []

    def __getitem__(self, grid):
        def compile_and_launch(*arguments, **options):
            self.binaries.append(Binary())
            return self.binaries[-1]

        return compile_and_launch


class Binary:
    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *arguments: self.launches.append((grid, arguments))


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(gpu_launch, "_compiled", {})
    monkeypatch.setattr(gpu_launch, "_remembered", {})
    return Compiler()


def test_a_binary_is_launched_with_addresses_and_constants(kernel):
    x = torch.zeros(8)
    for _ in range(3):
        launch(kernel, (5,), x, 7, 2.5, BLOCK=64)
    (binary,) = kernel.binaries
    assert binary.launches == [((5, 1, 1), (x.data_ptr(), 7, 2.5, 64))] * 2


def test_a_binary_is_launched_only_with_what_it_was_compiled_for(kernel):
    """In turn and again, so that both the first search and the memory of it are asked."""
    x = torch.zeros(8)
    kinds = [(x, 7), (x, 16), (x, 1), (x, 2**40 + 1), (x[1:], 7), (x.double(), 7)]
    for _ in range(3):
        for arguments in kinds:
            launch(kernel, (1,), *arguments, WIDE=True)
        launch(kernel, (1,), x, 7, WIDE=False)
        launch(kernel, (1,), x, 7, WIDE=True, warps=8)
    assert len(kernel.binaries) == len(kinds) + 2
    for (tensor, number), binary in zip(kinds, kernel.binaries, strict=False):
        assert binary.launches == [((1, 1, 1), (tensor.data_ptr(), number, True))] * 2


def test_other_sizes_of_a_kind_share_a_binary_and_are_forgotten(kernel, monkeypatch):
    monkeypatch.setattr(gpu_launch, "REMEMBERED", 3)
    x = torch.zeros(8)
    for number in range(3, 200, 2):
        launch(kernel, (1,), x, number)
        launch(kernel, (1,), x, float(number))
    assert len(kernel.binaries) == 2
    assert len(gpu_launch._remembered) <= 3
