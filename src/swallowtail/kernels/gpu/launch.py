"""Launching compiled Triton kernels without going through their compiler's front door every time.

Triton looks at every argument on every launch to find the binary that fits, and asks the driver about every pointer;
on a slow host four launches cost a training step as much time as its kernels take. Here the search is done once for
each kind of arguments, remembered for the very same sizes, and tensors are handed over as addresses.
"""

from __future__ import annotations

from typing import Any

import torch

_compiled: dict[Any, Any] = {}  # by what Triton tells apart
_remembered: dict[Any, Any] = {}  # the same by sizes as they are: found sooner, forgotten when too many
REMEMBERED = 4096


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """``kernel[grid](*arguments, **constants, num_warps=warps)``.

    Args:
        kernel: a ``triton.jit`` function whose constants come last, in the order given here.
        grid: one to three numbers of programs.
        arguments: tensors, the first of which says on which device, integers and floats.
        warps: of a program.
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
    # An address off its 16-byte boundary is rare: which of them it is, is looked up the long way.
    key = None if unaligned else (which, *sizes)
    binary = _remembered.get(key)
    if binary is None:
        kinds = (which, *_kinds(arguments))
        binary = _compiled.get(kinds)
        if binary is None:  # still None in the interpreter, which compiles nothing
            _compiled[kinds] = kernel[grid](*arguments, **constants, num_warps=warps)
            return
        if key is not None:
            if len(_remembered) >= REMEMBERED:
                _remembered.clear()
            _remembered[key] = binary
    binary[(*grid, 1, 1)[:3]](*handed, *constants.values())


def _kinds(arguments: tuple[Any, ...]) -> list[Any]:
    """What Triton compiles another binary for: a dtype, an address on a 16-byte boundary, an integer that is 1, a
    multiple of 16, or too large for 32 bits.
    """
    kinds: list[Any] = []
    for a in arguments:
        if isinstance(a, torch.Tensor):
            kinds += [a.dtype, a.data_ptr() % 16 == 0]
        elif isinstance(a, int):
            kinds += ["one" if a == 1 else a % 16 == 0, -(2**31) <= a < 2**31]
        else:
            kinds.append(float)
    return kinds
