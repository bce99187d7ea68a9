"""What is measured together: a job, a size, and everybody who does it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from benchmarks.kernels import contenders
from benchmarks.kernels.contenders import Contender

BATCH = 256


class Suite(NamedTuple):
    """One job at one size, and its contenders."""

    name: str
    n: int
    batch: int
    contenders: list[Contender]
    dtype: torch.dtype = torch.float32


def cpu(quick: bool) -> list[Suite]:
    """One batch of 256 rows, and one vector."""
    sizes = (1024, 4096) if quick else (64, 256, 1024, 4096, 16384)
    result: list[Suite] = []
    for n in sizes:
        result.append(Suite("rotate", n, BATCH, contenders.rotate(n, BATCH, "cpu", peers=n <= 4096)))
        result.append(Suite("symmetric", n, BATCH, contenders.symmetric(n, BATCH, "cpu")))
        if n <= 4096:
            result.append(Suite("training", n, BATCH, contenders.training(n, BATCH, "cpu")))
            result.append(Suite("one vector", n, 1, contenders.one_vector(n)))
    result.append(Suite("pairs", 784, BATCH, contenders.pairs("cpu", BATCH)))
    return result


def cuda(quick: bool) -> list[Suite]:
    """As many rows as make 512 MiB."""
    result: list[Suite] = []
    total = 2**27  # numbers: 512 MiB of float32, far beyond the L2 cache
    for n in (1024, 4096) if quick else (64, 256, 1024, 4096, 16384):
        batch = total // n
        result.append(Suite("rotate", n, batch, contenders.rotate(n, batch, "cuda")))
        result.append(Suite("symmetric", n, batch, contenders.symmetric(n, batch, "cuda")))
        if n in (256, 1024):
            half = torch.bfloat16
            result.append(Suite("rotate bf16", n, batch, contenders.rotate(n, batch, "cuda", half), half))
        if n == 1024:
            result.append(Suite("training", n, batch, contenders.training(n, batch, "cuda")))
    batch = total // 784
    result.append(Suite("pairs", 784, batch, contenders.pairs("cuda", batch)))
    return result
