"""What we assume about Triton, compared with Triton itself; a change in one of its releases fails here."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from interpreter import needs_compiler, needs_kernels, only_without_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

import triton
import triton.language as tl

from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton_private import current_stream, gl, gluon, load, specialisation


@triton.jit
def scale_kernel(x_ptr, n, factor, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n) * factor
    if TWICE:
        x = x * factor
    tl.store(x_ptr + at, x, mask=at < n)


class Driver:
    """Stands for the driver of an H200: compiles, but loads and launches nothing."""

    def __init__(self):
        from triton.backends.compiler import GPUTarget

        self.launcher_cls = lambda *_: pytest.fail("Triton launched")
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 77
        self.get_current_target = lambda: GPUTarget("cuda", 90, 32)
        self.utils = SimpleNamespace(
            load_binary=lambda *_: ("module", 4321, 0, 0, 1024),
            get_device_properties=lambda device: {"max_shared_mem": 232448},
        )


@pytest.fixture
def h200(monkeypatch):
    from triton.runtime.driver import driver

    caches = type(scale_kernel.device_caches)(scale_kernel.create_binder)
    monkeypatch.setattr(scale_kernel, "device_caches", caches)
    before, fake = driver._active, Driver()
    driver.set_active(fake)
    yield fake
    driver._active = before


# What PTX calls the parameters of a kernel.
PTX = {"*fp32": ".u64", "i32": ".u32", "i64": ".u64", "fp32": ".f32"}


@needs_compiler
def test_a_binary_takes_the_parameters_that_our_launch_gives_it(h200):
    """Those that Triton has made no constants, then two addresses of scratch memory. The binary itself says so."""
    x = torch.zeros(64)
    for number in (50, 48, 1, 2**40):
        found = load(scale_kernel, (x, number, 3.0), 4, {"BLOCK": 16, "TWICE": False})
        entry = found.binary.asm["ptx"].split(".entry")[1].split(")")[0]
        assert re.findall(r"\.param (\.\w+)", entry) == [*(PTX[kind] for kind in found.types), ".u64", ".u64"]
        assert found.taken == ((0, 2) if number == 1 else (0, 1, 2))
        assert found.types == (("*fp32", "fp32") if number == 1 else
                               ("*fp32", "i64" if number > 2**31 else "i32", "fp32"))  # fmt: skip
        assert (found.function, found.warps, found.shared) == (4321, 4, 0)


@needs_compiler
def test_constants_in_another_order_are_refused(h200):
    with pytest.raises(RuntimeError, match="ends with parameters"):
        load(scale_kernel, (torch.zeros(64), 50, 3.0), 4, {"TWICE": False, "BLOCK": 16})


@needs_compiler
def test_the_current_stream_is_the_drivers(h200):
    assert current_stream(0) == 77


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
    for specialised in (True, False):
        kernel = SimpleNamespace(params=[SimpleNamespace(do_not_specialize=not specialised)])
        theirs = [native_specialize_impl(CUDABackend, a, False, specialised, True) for a in arguments]
        ours = [tuple(specialisation(kernel, (a,))) for a in arguments]
        for i, j in itertools.combinations(range(len(arguments)), 2):
            # We may tell more apart than Triton, never less.
            same = ours[i] == ours[j]
            assert (theirs[i] == theirs[j]) == same or (not same and not specialised), arguments[i : j + 1]


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


PROGRAM = """
import sys
import pytest
import triton
assert triton.__version__ == sys.argv[1], triton.__version__
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.extras
@only_without_kernels
@pytest.mark.parametrize("version", ["3.7.0", "3.7.1"])
def test_kernels_with_the_triton_that_other_versions_of_pytorch_bring(version, tmp_path):
    """They compile, and the emulated H200 runs them. PyTorch 2.11 comes with Triton 3.6, as tested; 2.13 with 3.7.1."""
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        f"triton=={version}",
    ]
    subprocess.run(command, check=True, timeout=600, env=environment)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(tmp_path), *filter(None, [environment.get("PYTHONPATH")])]
    )
    folder = Path(__file__).parent
    files = [
        folder / "test_triton_private.py",
        folder / "test_emulated.py",
        folder / "gluon",
        folder.parents[1] / "optim" / "adam" / "gpu",
    ]
    command = [sys.executable, "-c", PROGRAM, version, "-q", "-x", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
