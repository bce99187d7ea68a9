"""Kernels as the package launches them, compiled for an H200 and run in NumPy, on tensors of the CPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from emulator.machine import run_programs
from emulator.memory import Global
from emulator.ptx import parse
from emulator.translate import Translation, translate
from swallowtail.kernels.gpu import device, launch

DTYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
AT_ONCE = 1 << 13  # threads
PROCESSORS = 3  # few, so that persistent programs take several turns
# What `device` would answer on an H200.
ANSWERS = {
    "runs_gluon": lambda x: True,
    "capability": lambda device: (9, 0),
    "multiplies_blocks": lambda device, dtype: True,
    "multiprocessors": lambda device: PROCESSORS,
    "shared_memory": lambda device: 232448,
}
_compiled: dict[Any, tuple[Any, Translation]] = {}


def pretend(monkeypatch: pytest.MonkeyPatch, apart: bool = False) -> list[str]:
    """Launches on the CPU run in NumPy, and the package takes the CPU for an H200. The list gets each kernel's name.

    ``apart``: warps run one after another, each as far as the next barrier.
    """
    for name, answer in ANSWERS.items():
        before = getattr(device, name)
        for module in [m for key, m in sys.modules.items() if key.startswith("swallowtail.")]:
            if getattr(module, name, None) is before:
                monkeypatch.setattr(module, name, answer)
    launched: list[str] = []

    def run(
        kernel: Any, grid: tuple[int, ...], arguments: Any, warps: int, constants: dict[str, Any]
    ) -> None:
        launched.append(kernel.__name__)
        emulate(kernel, grid, arguments, warps, constants, apart)

    monkeypatch.setattr(launch, "run", run)
    return launched


def emulate(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Any,
    warps: int,
    constants: dict[str, Any],
    apart: bool = False,
) -> None:
    """``kernel[grid](*arguments, **constants, num_warps=warps)``."""
    binary, code = compiled(kernel, arguments, warps, constants)
    taken = [
        a for a, kind in zip(arguments, binary.src.signature.values(), strict=False) if kind != "constexpr"
    ]
    run(
        code, (*taken, 0, 0), binary.metadata.shared, warps, grid, apart
    )  # scratch memory, of which we have none


def run(
    code: Translation,
    arguments: Any,
    shared: int,
    warps: int,
    grid: tuple[int, ...] = (1,),
    apart: bool = False,
) -> None:
    """All programs of a kernel, some thousand threads at a time, on tensors of the CPU and on numbers."""
    memory = Global([a for a in arguments if isinstance(a, torch.Tensor)])
    parameters = [memory.address(a) if isinstance(a, torch.Tensor) else _bits(a) for a in arguments]
    whole = (*grid, 1, 1)[:3]
    programs = np.arange(np.prod(whole))
    step = max(1, AT_ONCE // (32 * warps))
    with np.errstate(all="ignore"):
        for first in range(0, len(programs), step):
            some = programs[first : first + step]
            run_programs(code, [np.uint64(p) for p in parameters], memory, shared, warps, whole, some, apart)
    memory.copy_back()


def compiled(kernel: Any, arguments: Any, warps: int, constants: dict[str, Any]) -> tuple[Any, Translation]:
    """The binary of a kernel for such arguments, and its PTX as blocks.

    Products of several warps (``wgmma``) are not known here: kernels with such are compiled for the generation before.
    """
    signature, attributes = {}, {}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    for k, (name, a) in enumerate(zip(kernel.arg_names, arguments, strict=False)):
        plain = kernel.params[k].do_not_specialize
        address = a.data_ptr() if isinstance(a, torch.Tensor) else a
        if isinstance(a, torch.Tensor):
            signature[name] = "*" + DTYPES[a.dtype]
        elif isinstance(a, float):
            signature[name] = "fp32"
        elif a == 1 and not plain:
            signature[name], values[(k,)] = "constexpr", 1
        else:
            signature[name] = "i32" if -(2**31) <= a < 2**31 else "i64"
        if isinstance(address, int) and address % 16 == 0 and not plain and signature[name] != "constexpr":
            attributes[(k,)] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(constants, "constexpr")
    key = (kernel, warps, str(signature), str(values), str(attributes))
    if key not in _compiled:
        make = GluonASTSource if kernel.is_gluon() else ASTSource
        for capability in (90, 80):
            source = make(kernel, dict(signature), values, attributes)
            binary = triton.compile(
                source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
            )
            if "wgmma" not in binary.asm["ptx"]:
                break
        _compiled[key] = binary, translate(parse(binary.asm["ptx"]))
    return _compiled[key]


def _bits(value: Any) -> int:
    return int(np.float32(value).view(np.uint32)) if isinstance(value, float) else value & (2**64 - 1)
