"""What is measured together: a job, a size, and everybody who does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from benchmarks.kernels import contenders, grouped, usage
from benchmarks.kernels.contenders import Contender

BATCH = 256
HALF = (("bf16", torch.bfloat16), ("fp16", torch.float16))


class Suite(NamedTuple):
    """One job at one size. Its contenders are made when their turn comes: they hold the data."""

    name: str
    n: int
    batch: int
    make: Callable[[], list[Contender]]
    dtype: torch.dtype = torch.float32


def cpu(quick: bool) -> list[Suite]:
    """One batch of 256 rows, and one vector."""
    sizes = (1024, 4096) if quick else (64, 256, 1024, 4096, 16384)
    result: list[Suite] = []
    for n in sizes:
        rotate = partial(contenders.rotate, n, BATCH, "cpu", peers=n <= 4096)
        result.append(Suite("rotate", n, BATCH, rotate))
        result.append(Suite("symmetric", n, BATCH, partial(contenders.symmetric, n, BATCH, "cpu")))
        if n <= 4096:
            result.append(Suite("training", n, BATCH, partial(contenders.training, n, BATCH, "cpu")))
            result.append(Suite("one vector", n, 1, partial(contenders.one_vector, n)))
    result.append(Suite("pairs", 784, BATCH, partial(contenders.pairs, "cpu", BATCH)))
    return result


def cuda(quick: bool) -> list[Suite]:
    """As many rows as make 2^27 numbers."""
    result: list[Suite] = []
    total = 2**27  # 512 MiB of float32, far beyond the L2 cache
    for n in (1024, 4096) if quick else (64, 256, 1024, 4096, 16384):
        batch = total // n
        result.append(Suite("rotate", n, batch, partial(contenders.rotate, n, batch, "cuda")))
        result.append(Suite("symmetric", n, batch, partial(contenders.symmetric, n, batch, "cuda")))
        if n == 1024:
            result.append(Suite("training", n, batch, partial(contenders.training, n, batch, "cuda")))
    batch = total // 784
    result.append(Suite("pairs", 784, batch, partial(contenders.pairs, "cuda", batch)))
    return result + _half(quick, total) + _grouped(total) + _training(quick, total // 2) + _usage(total // 2)


def _half(quick: bool, total: int) -> list[Suite]:
    """Half precision, launched back to back, and one call at a time with the host's work."""
    result: list[Suite] = []
    for n in (1024, 4096) if quick else (128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        batch = total // n
        for name, dtype in HALF:
            rotate = partial(contenders.rotate, n, batch, "cuda", dtype)
            result.append(Suite(f"rotate {name}", n, batch, rotate, dtype))
            symmetric = partial(contenders.symmetric, n, batch, "cuda", dtype)
            result.append(Suite(f"symmetric {name}", n, batch, symmetric, dtype))
            if n in (1024, 4096) and name == "bf16":
                result.append(Suite("rotate bf16, one call", n, batch, _one_at_a_time(rotate), dtype))
    return result


def _grouped(total: int) -> list[Suite]:
    """Fixed groups, as quantisation and fine-tuning use them, and groups that a fit chooses."""
    result: list[Suite] = []
    for name, dtype in (("", torch.float32), (" bf16", torch.bfloat16)):
        n, batch = 4096, total // 4096
        result.append(Suite(f"groups of 128{name}", n, batch, partial(grouped.fixed, n, batch, dtype), dtype))
        batch = total // 784
        result.append(
            Suite(f"rounds of groups{name}", 784, batch, partial(grouped.free, batch, dtype), dtype)
        )
    n, half = 4096, torch.bfloat16
    result.append(
        Suite("fit of a kernel bf16", n, total // n, partial(grouped.fitted, total // n, half), half)
    )
    return result


def _training(quick: bool, total: int) -> list[Suite]:
    """Forward and backward of butterflies, beside nn.Linear."""
    result: list[Suite] = []
    for n in (1024, 4096) if quick else (256, 512, 1024, 4096):
        for name, dtype in (("", torch.float32), (" bf16", torch.bfloat16)):
            rows = partial(grouped.training, n, total // n, dtype)
            result.append(Suite(f"layer training{name}", n, total // n, rows, dtype))
    return result


def _usage(total: int) -> list[Suite]:
    """Few vectors, back to back and one call at a time; and a compiled training step on many."""
    result: list[Suite] = []
    for n in (1024, 4096):
        for name, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
            for what, make in (("forward", usage.forward), ("training", usage.training)):
                few = partial(make, n, usage.BATCH, dtype)
                result.append(Suite(f"few vectors, {what} {name}", n, usage.BATCH, few, dtype))
                once = f"few vectors, {what} {name}, one call"
                result.append(Suite(once, n, usage.BATCH, _one_at_a_time(few), dtype))
    for n in (1024, 4096):
        for name, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
            many = partial(usage.training, n, total // n, dtype, mode="default")
            result.append(Suite(f"compiled training {name}", n, total // n, many, dtype))
    return result


def _one_at_a_time(make: Callable[[], list[Contender]]) -> Callable[[], list[Contender]]:
    return lambda: contenders.one_at_a_time(make())
