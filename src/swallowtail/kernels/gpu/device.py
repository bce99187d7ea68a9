"""What a device offers to a launch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import torch

# Bound on the scratch buffer of a call: between two passes of a butterfly, or for the rows of the pairs kernels. Chunks
# that would stay in the L2 cache (32 MiB) were slower on an H200: their launches take longer than their work.
SCRATCH_BYTES = 1 << 30
SUMS_BYTES = 64 << 20  # bound on the programs' own sums of angle gradients


def runs_gluon(x: torch.Tensor) -> bool:
    """Whether the Gluon kernels, which are written for NVIDIA's warps of 32 threads, can run where x is."""
    return x.is_cuda and torch.version.hip is None


@lru_cache(maxsize=8)
def multiplies_half_blocks(device: torch.device) -> bool:
    """Whether the tensor cores of a device multiply both half-precision dtypes, and copies to shared memory run aside.

    Both came with compute capability 8.0.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@lru_cache(maxsize=32)
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


@lru_cache(maxsize=8)
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a device; the interpreter counts as a small one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@lru_cache(maxsize=8)
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    properties: Any = torch.cuda.get_device_properties(device)  # this attribute is missing in PyTorch's types
    return int(properties.shared_memory_per_block_optin)
