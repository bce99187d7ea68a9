"""What we assume about Triton, compared with Triton itself; a change in one of its releases fails here."""

from __future__ import annotations

import inspect
import itertools
from types import SimpleNamespace

import pytest
import torch
from interpreter import needs_compiler, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

import triton
import triton.language as tl

from swallowtail.kernels.gpu import launch as launching
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton_private import gl, gluon, specialisation


@triton.jit
def scale_kernel(x_ptr, n, factor, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n) * factor
    if TWICE:
        x = x * factor
    tl.store(x_ptr + at, x, mask=at < n)


class Launches:
    """Stands for the driver of an H200 and its launcher: notes with what Triton starts kernels."""

    def __init__(self):
        from triton.backends.compiler import GPUTarget

        self.noted = []
        self.launcher_cls = lambda source, metadata: lambda *arguments: self.noted.append(arguments)
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 77
        self.get_current_target = lambda: GPUTarget("cuda", 90, 32)
        self.utils = SimpleNamespace(
            load_binary=lambda *_: ("module", "function", 0, 0, 1024),
            get_device_properties=lambda device: {"max_shared_mem": 232448},
        )


@pytest.fixture
def launches(monkeypatch):
    from triton.runtime.driver import driver

    monkeypatch.setattr(launching, "_compiled", {})
    monkeypatch.setattr(launching, "_remembered", {})
    monkeypatch.setattr(
        scale_kernel, "device_caches", type(scale_kernel.device_caches)(scale_kernel.create_binder)
    )
    before, fake = driver._active, Launches()
    driver.set_active(fake)
    yield fake
    driver._active = before


@needs_compiler
def test_a_binary_is_launched_just_as_triton_launches_it(launches):
    """The first launch is Triton's own, the others are ours: same grid, stream, function and arguments."""
    x = torch.zeros(64)
    for _ in range(3):
        launch(scale_kernel, (4, 2), x, 50, 3.0, BLOCK=16, TWICE=False)
    theirs, *ours = launches.noted
    assert len(ours) == 2
    tensor = next(i for i, a in enumerate(theirs) if a is x)
    assert theirs[:4] == (4, 2, 1, 77)
    assert theirs[tensor:] == (x, 50, 3.0, 16, False)
    plain = lambda launched: [
        a.get() if hasattr(a, "get") else a for a in launched[:tensor]
    ]  # metadata are lazy
    for again in ours:
        assert plain(again) == plain(theirs)
        assert again[tensor:] == (x.data_ptr(), 50, 3.0, 16, False)


@needs_compiler
def test_a_launch_without_a_binary_for_it_compiles_one(launches):
    x = torch.zeros(64)
    for arguments in ((x, 50, 3.0), (x[1:], 50, 3.0), (x.double(), 50, 3.0), (x, 48, 3.0), (x, 1, 3.0)):
        for twice in (False, True):
            launch(scale_kernel, (4,), *arguments, BLOCK=16, TWICE=twice)
    assert len(launching._compiled) == 10
    assert all(isinstance(binary, triton.compiler.CompiledKernel) for binary in launching._compiled.values())


NUMBERS = [
    0,
    1,
    2,
    7,
    16,
    17,
    48,
    -1,
    -16,
    2**31 - 1,
    2**31,
    2**31 + 16,
    -(2**31),
    -(2**31) - 1,
    2**40,
    2**62,
]


def test_what_triton_compiles_apart_we_tell_apart():
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.nvidia.compiler import CUDABackend

    x = torch.zeros(64)
    tensors = [x, x[1:], x[4:], x.double(), x.bfloat16(), x.half(), x.int(), x.long(), x.long()[1:]]
    arguments = [*NUMBERS, 0.0, 1.0, 2.5, 16.0, *tensors]
    theirs = [native_specialize_impl(CUDABackend, a, False, True, True) for a in arguments]
    ours = [tuple(specialisation((a,))) for a in arguments]
    for i, j in itertools.combinations(range(len(arguments)), 2):
        assert (theirs[i] == theirs[j]) == (ours[i] == ours[j]), (arguments[i], arguments[j])


@needs_kernels
def test_the_interpreter_or_the_gpu_runs_a_launch():
    from interpreter import DEVICE

    x = torch.arange(50.0, device=DEVICE)
    for _ in range(2):  # the second time, on a GPU, by the remembered binary
        launch(scale_kernel, (4,), x, 50, 3.0, BLOCK=16, TWICE=True)
    assert torch.equal(x.cpu(), torch.arange(50.0) * 81)


def test_gluon_is_the_dialect_with_layouts():
    """The names that our kernels take from it."""
    for name in (
        "BlockedLayout",
        "SliceLayout",
        "convert_layout",
        "allocate_shared_memory",
        "inline_asm_elementwise",
    ):
        assert hasattr(gl, name), name
    assert "assert_trivial" in inspect.signature(gl.convert_layout).parameters
    assert callable(gluon.jit)
    assert callable(gluon.constexpr_function)
