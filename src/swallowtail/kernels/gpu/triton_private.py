"""All that we take from Triton beyond its public ``triton`` and ``triton.language``.

Four things: the experimental dialect Gluon, how a kernel is compiled and loaded without being launched, which arguments
a binary takes, and for which arguments Triton compiles another binary. The last three are not documented by Triton. A
wrong guess would launch a binary with arguments it was not made for, so the tests of this file compare each with
Triton's own code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.runtime.driver import driver

__all__ = [
    "Loaded", "async_copy", "current_stream", "gl", "gluon", "load", "mma_v2", "run", "specialisation",
    "thread_barrier",
]  # fmt: skip

# All threads of a program meet here. Triton 3.7 gave it another name.
thread_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


class Loaded(NamedTuple):
    """A binary on a device."""

    function: int  # the driver's handle
    types: tuple[str, ...]  # of the parameters that it takes: "*fp32", "i32", "i64", "fp32", …
    taken: tuple[int, ...]  # their numbers among the kernel's arguments
    warps: int
    shared: int  # bytes
    binary: Any  # keeps it loaded


def run(kernel: Any, grid: tuple[int, ...], arguments: Any, warps: int, constants: dict[str, Any]) -> None:
    """Launch a kernel in Triton's own way: in the interpreter, and on devices without CUDA."""
    _check_order(kernel, arguments, constants)
    kernel[grid](*arguments, **constants, num_warps=warps)


def load(kernel: Any, arguments: tuple[Any, ...], warps: int, constants: dict[str, Any]) -> Loaded:
    """Compile a kernel for arguments of this kind and load it on the current device, without a launch.

    Triton's own first launch would also compile a C program for the launch, which takes as long as a small kernel.
    """
    _check_order(kernel, arguments, constants)
    binary = kernel.run(*arguments, **constants, num_warps=warps, grid=(1,), warmup=True)
    data = binary.metadata
    special = (data.num_ctas != 1, data.launch_cooperative_grid, data.launch_pdl, data.global_scratch_size)
    if any(special) or data.profile_scratch_size:
        raise RuntimeError(f"{kernel.__name__} needs a kind of launch that we do not make: {data}")
    device, utils = driver.active.get_current_device(), driver.active.utils
    if data.shared > utils.get_device_properties(device)["max_shared_mem"]:
        raise RuntimeError(f"{kernel.__name__} needs {data.shared} bytes of shared memory, too many here")
    _, function, _, _, most_threads = utils.load_binary(binary.name, binary.kernel, data.shared, device)
    if 32 * data.num_warps > most_threads:
        raise RuntimeError(f"{kernel.__name__} has registers for {most_threads} threads only")
    # What Triton has made a constant, a 1 for instance, is no parameter of the binary.
    types = list(binary.src.signature.values())[: len(arguments)]
    taken = tuple(i for i, kind in enumerate(types) if kind != "constexpr")
    return Loaded(function, tuple(types[i] for i in taken), taken, data.num_warps, data.shared, binary)


def _check_order(kernel: Any, arguments: Any, constants: dict[str, Any]) -> None:
    """The ``constants`` have to be the kernel's last parameters, in this order: binaries are found by position."""
    last = kernel.arg_names[len(arguments) :]
    if last != list(constants):
        raise RuntimeError(f"{kernel.__name__} ends with parameters {last}, but was given {list(constants)}")


def current_stream(device: int) -> int:
    """The driver's handle of the current stream of a device."""
    handle: int = driver.active.get_current_stream(device)
    return handle


def specialisation(kernel: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """What Triton compiles another binary for; arguments with equal lists share one.

    Of a tensor these are its dtype and whether its address is a multiple of 16 bytes. Of an integer: whether it is 1,
    whether it is a multiple of 16, and whether it needs more than 32 bits; only the last where the kernel says
    ``do_not_specialize``. Of a float: nothing.
    """
    kinds: list[Any] = []
    for a, parameter in zip(arguments, kernel.params, strict=False):
        if isinstance(a, torch.Tensor):
            kinds += [a.dtype, a.data_ptr() % 16 == 0]
        elif isinstance(a, int):
            special = not parameter.do_not_specialize
            kinds += [special and ("one" if a == 1 else a % 16 == 0), -(2**31) <= a < 2**31]
        else:
            kinds.append(float)
    return kinds
