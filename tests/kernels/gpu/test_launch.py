"""Which launches may share a binary."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import launch as launching
from swallowtail.kernels.gpu.launch import launch


class Compiler:
    """Stands for a Triton kernel: compiles a binary per launch and notes what that is launched with."""

    __name__ = "kernel"

    def __init__(self, *names):
        self.arg_names, self.binaries = list(names), []

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


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(launching, "_compiled", {})
    monkeypatch.setattr(launching, "_remembered", {})


def test_a_binary_is_launched_with_addresses_and_constants():
    kernel, x = Compiler("x", "n", "factor", "BLOCK"), torch.zeros(8)
    for _ in range(3):
        launch(kernel, (5,), x, 7, 2.5, BLOCK=64)
    (binary,) = kernel.binaries
    assert binary.launches == [((5, 1, 1), (x.data_ptr(), 7, 2.5, 64))] * 2


def test_constants_in_another_order_are_refused():
    kernel, x = Compiler("x", "BLOCK", "WIDE"), torch.zeros(8)
    with pytest.raises(RuntimeError, match="ends with parameters"):
        launch(kernel, (5,), x, WIDE=True, BLOCK=64)
    launch(kernel, (5,), x, BLOCK=64, WIDE=True)


def test_a_binary_is_launched_only_with_what_it_was_compiled_for():
    """Three rounds: compiling, finding the binary by kind, finding it by exact sizes."""
    kernel, x = Compiler("x", "n", "WIDE"), torch.zeros(8)
    kinds = [(x, 7), (x, 16), (x, 1), (x, 2**40 + 1), (x[1:], 7), (x.double(), 7)]
    for _ in range(3):
        for arguments in kinds:
            launch(kernel, (1,), *arguments, WIDE=True)
        launch(kernel, (1,), x, 7, WIDE=False)
        launch(kernel, (1,), x, 7, WIDE=True, warps=8)
    assert len(kernel.binaries) == len(kinds) + 2
    for (tensor, number), binary in zip(kinds, kernel.binaries, strict=False):
        assert binary.launches == [((1, 1, 1), (tensor.data_ptr(), number, True))] * 2


def test_other_sizes_of_a_kind_share_a_binary_and_are_forgotten(monkeypatch):
    monkeypatch.setattr(launching, "REMEMBERED", 3)
    kernel, x = Compiler("x", "n"), torch.zeros(8)
    for number in range(3, 200, 2):
        launch(kernel, (1,), x, number)
        launch(kernel, (1,), x, float(number))
    assert len(kernel.binaries) == 2
    assert len(launching._remembered) <= 3
