"""Launching compiled Triton kernels with little work on the host.

Triton looks at every argument of every launch to find the binary that fits, and asks the driver about every pointer. On
a slow host, four such launches took as long as the kernels of a training step. Here the binary is looked up once per
kind of arguments and remembered by their exact sizes, with all but the addresses laid out for the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from swallowtail.kernels.gpu.device import relaxed_capture
from swallowtail.kernels.gpu.driver import Ready
from swallowtail.kernels.gpu.triton_private import Loaded, current_stream, load, run, specialisation

_loaded: dict[Any, Loaded] = {}  # by what Triton tells apart
_ready: dict[Any, Ready] = {}  # by exact sizes: a shorter key to make
# Sizes remembered before all are dropped: far more than one program uses, and at most a few megabytes.
REMEMBERED = 4096
_current_device = torch.cuda.current_device
# Told of every launch while a call is recorded (`replay`): how to start it, and its arguments.
watcher: Callable[[Callable[..., None], tuple[Any, ...]], None] | None = None


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """``kernel[grid](*arguments, **constants, num_warps=warps)``, on the device of the first argument.

    Args:
        kernel: a ``triton.jit`` or ``gluon.jit`` function. Its constants come last, in the order given here.
        grid: one to three numbers of programs.
        arguments: tensors, integers and floats; the first is a tensor.
        warps: warps per program.
        constants: the ``tl.constexpr`` parameters.
    """
    device = arguments[0].get_device()
    if 0 in grid:
        return  # the driver refuses it
    if not runs_cuda(device):
        run(kernel, grid, arguments, warps, constants)
    elif device != _current_device():
        with torch.cuda.device(device):
            _launch(kernel, grid, arguments, device, warps, constants)
    else:
        _launch(kernel, grid, arguments, device, warps, constants)


def loaded() -> dict[Any, str]:
    """The names of the binaries that this process has loaded, by what Triton tells apart."""
    return {kinds: found.binary.name for kinds, found in _loaded.items()}


def runs_cuda(device: int) -> bool:
    """Whether a device, by its number, has CUDA's own driver. The interpreter's device is the CPU, −1."""
    return device >= 0 and torch.version.hip is None


def _launch(
    kernel: Any, grid: tuple[int, ...], arguments: Any, device: int, warps: int, constants: dict[str, Any]
) -> None:
    given: list[Any] = []  # what changes from launch to launch: addresses and floats
    sizes: list[Any] = []
    unaligned = 0
    for a in arguments:
        kind = type(a)
        if kind is int:
            sizes.append(a)
        elif kind is float:
            given.append(a)
            sizes.append(float)
        else:
            address = a.data_ptr()
            given.append(address)
            sizes.append(a.dtype)
            unaligned |= address
    # Addresses off a 16-byte boundary are rare. The short key does not say which of them it is, so they go without it.
    key = None if unaligned & 15 else (id(kernel), device, warps, grid, *constants.values(), *sizes)
    found = _ready.get(key)
    if found is None:
        found = ready(kernel, grid, *arguments, warps=warps, **constants)
        if key is not None:
            if len(_ready) >= REMEMBERED:
                _ready.clear()
            _ready[key] = found
    found.start(current_stream(device), *given)
    if watcher is not None:
        watcher(found.start, arguments)


def ready(kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any) -> Ready:
    """A launch with everything decided but addresses and floats. Arguments as in `launch`, on the current device.

    It may be started with other addresses of the same alignment to 16 bytes.
    """
    device = arguments[0].get_device()
    kinds = (id(kernel), device, warps, *constants.values(), *specialisation(kernel, arguments))
    loaded = _loaded.get(kinds)
    if loaded is None:
        with relaxed_capture():
            loaded = _loaded[kinds] = load(kernel, arguments, warps, constants)
    return Ready(loaded, grid, arguments)
