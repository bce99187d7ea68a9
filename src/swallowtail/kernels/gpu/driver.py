"""The CUDA driver's own launch: a kernel with its arguments laid out in memory, started again by few instructions.

Through Triton's launcher a launch takes the host about as long as a small kernel runs, and every kind of kernel first
has a C program compiled for it.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from threading import Lock
from typing import Any

import torch

from swallowtail.kernels.gpu.device import driver_library
from swallowtail.kernels.gpu.triton_private import Loaded

INVALID_CONTEXT = 201  # a thread that has not used the device yet


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("n_attributes", ctypes.c_uint),
    )


class Ready:
    """A binary with its grid and numbers. `start` gives it addresses and floats, in the order of the arguments.

    Args:
        loaded: the binary.
        grid: one to three numbers of programs.
        arguments: of the kernel, without its constants.
    """

    def __init__(self, loaded: Loaded, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self._loaded, self._function = loaded, loaded.function
        # Two more parameters stand for scratch memory, which our kernels do not have.
        self._values = (ctypes.c_uint64 * (len(loaded.taken) + 2))()
        first, size = ctypes.addressof(self._values), ctypes.sizeof(ctypes.c_uint64)
        self._pointers = (ctypes.c_void_p * len(self._values))(
            *(first + size * i for i in range(len(self._values)))
        )
        block = (32 * loaded.warps, 1, 1)
        self._config = _Config((*grid, 1, 1)[:3], block, loaded.shared, None, None, 0)
        self._addresses = ctypes.addressof(self._config), ctypes.addressof(self._pointers)
        self._given: list[int] = []  # for each address or float, its place among the values
        self._floats = False
        slots = {number: slot for slot, number in enumerate(loaded.taken)}
        for number, a in enumerate(arguments):
            if isinstance(a, (torch.Tensor, float)):
                self._given.append(slots[number])
                self._floats |= isinstance(a, float)
            elif number in slots:
                self._values[slots[number]] = int(a) & (2**64 - 1)  # its low half is the number as 32 bits
        self._lock, self._launch = Lock(), _launch_function()

    def start(self, stream: int, *given: Any) -> None:
        """Launch on a stream of the current device."""
        values = self._values
        with self._lock:  # another thread may launch the same kernel
            if self._floats:
                self._set(given)
            else:
                for slot, address in zip(self._given, given):  # strict=True would take a tenth of the time
                    values[slot] = address
            self._config.stream = stream
            code = self._launch(self._addresses[0], self._function, self._addresses[1], None)
            if code == INVALID_CONTEXT:
                torch.cuda.set_device(torch.cuda.current_device())
                code = self._launch(self._addresses[0], self._function, self._addresses[1], None)
        if code:
            raise RuntimeError(f"a kernel could not be launched: {_error(code)}")

    def _set(self, given: tuple[Any, ...]) -> None:
        for slot, value in zip(self._given, given, strict=True):
            if isinstance(value, float):
                value = struct.unpack("<I", struct.pack("<f", value))[0]  # Triton passes floats as 32 bits
            self._values[slot] = value


@cache
def _launch_function() -> Any:
    function = driver_library().cuLaunchKernelEx
    function.argtypes = (ctypes.c_void_p,) * 4
    return function


def _error(code: int) -> str:
    text = ctypes.c_char_p()
    driver_library().cuGetErrorString(code, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode()} ({code})"
