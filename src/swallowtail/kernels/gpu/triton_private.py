"""All that we take from Triton beyond its public ``triton`` and ``triton.language``.

Three things: the experimental dialect Gluon, how a compiled kernel is launched again, and for which arguments Triton
compiles another binary. The last two are not documented by Triton. A wrong guess would launch a binary with arguments
it was not made for, so the tests of this file compare each with Triton's own code.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

__all__ = ["async_copy", "compile_and_launch", "gl", "gluon", "launch_again", "mma_v2", "specialisation"]


def compile_and_launch(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], warps: int, constants: dict[str, Any]
) -> Any:
    """Launch a kernel in Triton's own way; return its binary, or None in the interpreter, which has none.

    The ``constants`` have to be the kernel's last parameters, in this order: `launch_again` goes by position.
    """
    last = kernel.arg_names[len(arguments) :]
    if last != list(constants):
        raise RuntimeError(f"{kernel.__name__} ends with parameters {last}, but was given {list(constants)}")
    return kernel[grid](*arguments, **constants, num_warps=warps)


def launch_again(binary: Any, grid: tuple[int, ...], arguments: list[Any], constants: dict[str, Any]) -> None:
    """Launch a binary on the current device and stream.

    A binary takes all parameters by position, constants included, tensors as addresses, and a grid of three numbers.
    """
    binary[(*grid, 1, 1)[:3]](*arguments, *constants.values())


def specialisation(arguments: tuple[Any, ...]) -> list[Any]:
    """What Triton compiles another binary for; arguments with equal lists share one.

    Of a tensor these are its dtype and whether its address is a multiple of 16 bytes. Of an integer: whether it is 1,
    whether it is a multiple of 16, and whether it needs more than 32 bits. Of a float: nothing.
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
