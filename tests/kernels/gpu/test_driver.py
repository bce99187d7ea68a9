"""What the CUDA driver is given for a launch, looked at in memory."""

from __future__ import annotations

import ctypes
import struct

import pytest
import torch
from bounded import finish

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import driver
from swallowtail.kernels.gpu.triton_private import Loaded


class Launches:
    """Stands for cuLaunchKernelEx."""

    def __init__(self, count, code=0):
        self.count, self.code, self.seen = count, code, []

    def __call__(self, config, function, pointers, extra):
        assert extra is None
        words = ctypes.cast(config, ctypes.POINTER(ctypes.c_uint))
        addresses = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_uint64))
        values = [ctypes.c_uint64.from_address(addresses[i]).value for i in range(self.count)]
        stream = ctypes.c_uint64.from_address(config + 32).value
        self.seen.append((tuple(words[i] for i in range(7)), stream, function, values))
        return self.code


def loaded(types, taken):
    return Loaded(1234, types, taken, 4, 4096, None)


def ready(monkeypatch, launches, *arguments):
    monkeypatch.setattr(driver, "_launch_function", lambda: launches)
    return driver.Ready(loaded(("*fp32", "i32", "fp32", "i64"), (0, 1, 2, 4)), (5, 6), arguments)


def test_a_launch_as_the_driver_sees_it(monkeypatch):
    launches, x = Launches(6), torch.zeros(4)
    start = ready(monkeypatch, launches, x, -3, 0.5, 1, 2**40).start  # the 1 is a constant of the binary
    start(77, 4096, 2.5)
    start(78, 8192, -1.0)
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in (2.5, -1.0)]
    shape = (5, 6, 1, 128, 1, 1, 4096)
    for (words, stream, function, values), address, number, factor in zip(
        launches.seen, (4096, 8192), (77, 78), bits, strict=True
    ):
        assert (words, stream, function) == (shape, number, 1234)
        assert values[0] == address
        assert values[1] & 0xFFFFFFFF == 2**32 - 3
        assert values[2:] == [factor, 2**40, 0, 0]  # the last two: no scratch memory


def test_the_drivers_error_is_raised(monkeypatch):
    monkeypatch.setattr(driver, "_error", lambda code: f"no reason ({code})")
    start = ready(monkeypatch, Launches(6, code=700), torch.zeros(4), 3, 0.5, 1, 2**40).start
    with pytest.raises(RuntimeError, match=r"could not be launched: no reason \(700\)"):
        start(0, 4096, 2.5)


def test_threads_do_not_mix_their_addresses(monkeypatch):
    launches = Launches(6)
    start = ready(monkeypatch, launches, torch.zeros(4), 3, 0.5, 1, 2**40).start
    numbers = range(1, 2001)
    finish([lambda s=s: [start(k, k, float(k)) for k in numbers[s::4]] for s in range(4)])
    assert len(launches.seen) == len(numbers)
    for _, stream, _, values in launches.seen:
        assert values[0] == stream
        assert values[2] == struct.unpack("<I", struct.pack("<f", float(stream)))[0]
