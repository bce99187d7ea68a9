"""Launching compiled Triton kernels with little work on the host.

Triton looks at every argument of every launch to find the binary that fits, and asks the driver about every pointer. On
a slow host, four such launches took as long as the kernels of a training step. Here the binary is looked up once per
kind of arguments and remembered by their exact sizes, and tensors are passed as addresses.
"""

from __future__ import annotations

from typing import Any

import torch

from swallowtail.kernels.gpu.triton_private import compile_and_launch, launch_again, specialisation

_compiled: dict[Any, Any] = {}  # by what Triton tells apart
_remembered: dict[Any, Any] = {}  # by exact sizes: a shorter key to make
# Sizes remembered before all are dropped: far more than one program uses, and at most a few megabytes.
REMEMBERED = 4096


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """``kernel[grid](*arguments, **constants, num_warps=warps)``, on the device of the first argument.

    Args:
        kernel: a ``triton.jit`` or ``gluon.jit`` function. Its constants come last, in the order given here.
        grid: one to three numbers of programs.
        arguments: tensors, integers and floats; the first is a tensor.
        warps: warps per program.
        constants: the ``tl.constexpr`` parameters.
    """
    device = arguments[0].device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device_of(arguments[0]):
            _launch(kernel, grid, arguments, device, warps, constants)
    else:
        _launch(kernel, grid, arguments, device, warps, constants)


def _launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    device: torch.device,
    warps: int,
    constants: dict[str, Any],
) -> None:
    which = (id(kernel), device.index, warps, *constants.values())
    handed: list[Any] = []
    sizes: list[Any] = []
    unaligned = 0
    for a in arguments:
        if isinstance(a, torch.Tensor):
            address = a.data_ptr()
            handed.append(address)
            sizes.append(a.dtype)
            unaligned |= address % 16
        else:
            handed.append(a)
            sizes.append(a if isinstance(a, int) else float)
    # Addresses off a 16-byte boundary are rare. The short key does not say which of them it is, so they go without it.
    key = None if unaligned else (which, *sizes)
    binary = _remembered.get(key)
    if binary is None:
        kinds = (which, *specialisation(arguments))
        binary = _compiled.get(kinds)
        if binary is None:  # always so in the interpreter, which compiles nothing
            _compiled[kinds] = compile_and_launch(kernel, grid, arguments, warps, constants)
            return
        if key is not None:
            if len(_remembered) >= REMEMBERED:
                _remembered.clear()
            _remembered[key] = binary
    launch_again(binary, grid, handed, constants)
