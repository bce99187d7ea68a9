"""Which launches may share a binary, and with what it is started."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import launch as launching
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton_private import Loaded


class Kernel:
    """Stands for a Triton kernel on a GPU: notes what is compiled for it and what is started."""

    __name__ = "kernel"

    def __init__(self, *names, plain=()):
        self.arg_names = list(names)
        self.params = [SimpleNamespace(do_not_specialize=name in plain) for name in names]
        self.binaries, self.started = [], []


class Ready:
    """Stands for `driver.Ready`."""

    def __init__(self, loaded, grid, arguments):
        self.loaded, self.grid, self.arguments = loaded, grid, arguments

    def start(self, stream, *given):
        kernel, number = self.loaded.binary
        kernel.started.append((number, self.grid, stream, given))


def loaded(kernel, arguments, warps, constants):
    kernel.binaries.append((arguments, warps, constants))
    return Loaded(0, (), (), warps, 0, (kernel, len(kernel.binaries) - 1))


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch):
    for name, fake in {
        "_loaded": {}, "_ready": {}, "Ready": Ready, "load": loaded, "runs_cuda": lambda device: True,
        "_current_device": lambda: -1, "current_stream": lambda device: 77, "relaxed_capture": contextlib.nullcontext,
    }.items():  # fmt: skip
        monkeypatch.setattr(launching, name, fake)


def test_a_launch_is_started_with_addresses_and_floats():
    kernel, x = Kernel("x", "n", "factor", "BLOCK"), torch.zeros(8)
    for factor in (2.5, 3.5):
        launch(kernel, (5,), x, 7, factor, BLOCK=64)
    assert len(kernel.binaries) == 1
    assert kernel.started == [(0, (5,), 77, (x.data_ptr(), factor)) for factor in (2.5, 3.5)]


def test_a_binary_is_started_only_with_what_it_was_compiled_for():
    """Three rounds: compiling, then finding the launch by its exact sizes, or the binary where an address is odd."""
    kernel, x = Kernel("x", "n", "WIDE"), torch.zeros(8)
    kinds = [(x, 7), (x, 16), (x, 1), (x, 2**40 + 1), (x[1:], 7), (x.double(), 7)]
    for _ in range(3):
        for arguments in kinds:
            launch(kernel, (1,), *arguments, WIDE=True)
        launch(kernel, (1,), x, 7, WIDE=False)
        launch(kernel, (1,), x, 7, WIDE=True, warps=8)
    assert len(kernel.binaries) == len(kinds) + 2
    assert [number for number, *_ in kernel.started] == [*range(len(kinds) + 2)] * 3


def test_the_grid_belongs_to_a_launch_and_not_to_a_binary():
    kernel, x = Kernel("x", "n"), torch.zeros(8)
    for grid in ((1,), (2, 3), (1,)):
        launch(kernel, grid, x, 7)
    assert [grid for _, grid, *_ in kernel.started] == [(1,), (2, 3), (1,)]
    assert len(kernel.binaries) == 1


def test_sizes_that_a_kernel_does_not_specialise_share_a_binary():
    kernel, x = Kernel("x", "rows", plain=("rows",)), torch.zeros(8)
    for rows in (1, 7, 16, 2**20):
        launch(kernel, (1,), x, rows)
    assert len(kernel.binaries) == 1
    launch(kernel, (1,), x, 2**31)
    assert len(kernel.binaries) == 2


def test_other_sizes_of_a_kind_are_forgotten(monkeypatch):
    monkeypatch.setattr(launching, "REMEMBERED", 3)
    kernel, x = Kernel("x", "n"), torch.zeros(8)
    for number in range(3, 200, 2):
        launch(kernel, (1,), x, number)
        launch(kernel, (1,), x, float(number))
    assert len(kernel.binaries) == 2
    assert len(launching._ready) <= 3
