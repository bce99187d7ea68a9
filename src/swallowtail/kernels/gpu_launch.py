"""Launching compiled Triton kernels without going through their compiler's front door every time.

Triton looks at every argument on every launch to find the binary that fits; on a slow host four launches cost a
training step as much time as its kernels take. Here that search is done once for each kind of arguments.
"""

from __future__ import annotations

from typing import Any

import torch

_compiled: dict[Any, Any] = {}


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
    key = (id(kernel), device.index, warps, *constants.values(), *_kinds(arguments))
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device_of(arguments[0]):
            _start(key, kernel, grid, arguments, warps, constants)
    else:
        _start(key, kernel, grid, arguments, warps, constants)


def _kinds(arguments: tuple[Any, ...]) -> list[Any]:
    """What Triton compiles another binary for: a dtype, an address on a 16-byte boundary, an integer that is 1, a
    multiple of 16, or too large for 32 bits. One flat list: pairs and generators take twice as long.
    """
    kinds: list[Any] = []
    for a in arguments:
        if isinstance(a, torch.Tensor):
            kinds.append(a.dtype)
            kinds.append(a.data_ptr() % 16 == 0)
        elif isinstance(a, int):
            kinds.append("one" if a == 1 else a % 16 == 0)
            kinds.append(-(2**31) <= a < 2**31)
        else:
            kinds.append(float)
    return kinds


def _start(
    key: tuple[Any, ...],
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    warps: int,
    constants: dict[str, Any],
) -> None:
    compiled = _compiled.get(key)
    if compiled is None:
        # None from the interpreter, which compiles nothing.
        _compiled[key] = kernel[grid](*arguments, **constants, num_warps=warps)
    else:
        compiled[(*grid, 1, 1)[:3]](*arguments, *constants.values())
