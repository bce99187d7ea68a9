"""What a device offers to a launch."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import torch

# Bound on the scratch buffer of a call: between two passes of a butterfly, or for the rows of the pairs kernels. Chunks
# that would stay in the L2 cache (32 MiB) were slower on an H200: their launches take longer than their work.
SCRATCH_BYTES = 1 << 30
SUMS_BYTES = 64 << 20  # bound on the programs' own sums of angle gradients


def runs_gluon(x: torch.Tensor) -> bool:
    """Whether the Gluon kernels, which are written for NVIDIA's warps of 32 threads, can run where x is."""
    return x.is_cuda and torch.version.hip is None


def capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded: then nothing may wait, and new memory is the graph's own."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def constant(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """An array on a device, for good.

    A graph that is being recorded reuses its memory between replays, and compilers that record graphs put all that the
    thread allocates into such memory. So another thread makes the tensor, on a stream of its own.
    """
    host = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return host.to(device)
    made: list[torch.Tensor] = []

    def make() -> None:
        with torch.cuda.device(device), relaxed_capture():
            stream = torch.cuda.Stream(device)
            with torch.cuda.stream(stream):
                made.append(host.to(device))
            stream.synchronize()

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError(f"a table of {array.nbytes} bytes could not be copied to {device}")
    if not capturing(device):
        made[0].record_stream(torch.cuda.current_stream(device))  # it was made on another one
    return made[0]


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Within the block, this thread may allocate, wait and load kernels although a CUDA graph is being recorded."""
    mode = ctypes.c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED
    driver_library().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))  # it gives the mode before
    try:
        yield
    finally:
        driver_library().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


@cache
def driver_library() -> Any:
    """CUDA's driver, which PyTorch has loaded."""
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=8)
def capability(device: torch.device) -> tuple[int, int]:
    """NVIDIA's number for the generation of a GPU; (0, 0) for other devices."""
    if device.type != "cuda" or torch.version.hip is not None:
        return 0, 0
    return torch.cuda.get_device_capability(device)


def multiplies_half_blocks(device: torch.device) -> bool:
    """Whether the tensor cores of a device multiply both half-precision dtypes, and copies to shared memory run aside.

    Both came with compute capability 8.0.
    """
    return capability(device) >= (8, 0)


def multiplies_blocks(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether Triton's products of small matrices run on a device.

    NVIDIA's have tensor cores for half precision and float32 from compute capability 8.0 on. Triton's interpreter
    multiplies no bf16.
    """
    return dtype != torch.bfloat16 if device.type == "cpu" else multiplies_half_blocks(device)


def float32_products() -> Literal["tf32x3", "tf32"]:
    """How tensor cores multiply float32 numbers: in three parts, as exact as float32, unless PyTorch is told otherwise.

    ``torch.set_float32_matmul_precision("high")`` asks for one product of rounded numbers, and so does
    ``torch.backends.cuda.matmul.fp32_precision = "tf32"``.
    """
    try:
        exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # it refuses to answer once the other way has been used
        exact = torch.backends.cuda.matmul.fp32_precision != "tf32"
    return "tf32x3" if exact else "tf32"


def adds_pairs(device: torch.device) -> bool:
    """Whether two neighbouring float32 numbers in memory can be added to at once: from compute capability 9.0 on."""
    return capability(device) >= (9, 0)


def stores_matrices(device: torch.device) -> bool:
    """Whether a warp stores fragments of matrices in one instruction: from compute capability 9.0 on."""
    return capability(device) >= (9, 0)


@lru_cache(maxsize=8)
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a device; the interpreter counts as a small one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@lru_cache(maxsize=8)
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    properties: Any = torch.cuda.get_device_properties(device)  # this attribute is missing in PyTorch's types
    return int(properties.shared_memory_per_block_optin)
