"""Fits that one machine makes and another times, and how products are timed on a GPU.

A GPU may be there for minutes only. So fits can be made beforehand and kept in a file; the machine with the GPU then
only times them. It needs no images, and it compiles no code for fits.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from benchmarks.common.rows import Row
from swallowtail.fitting import runner
from swallowtail.fitting.timing import TimeModel
from swallowtail.fitting.timing.calibrate import VECTORS
from swallowtail.fitting.timing.model import _closest
from swallowtail.fitting.timing.record import read_tables

REPEATS, CALLS = 20, 8  # measurements, taken in turn, and calls in each


class Kept(NamedTuple):
    """A contender on one matrix: the columns of its row but for the time, and its operator, None for a dense one."""

    row: Row
    operator: Any


def save(path: Path, fits: list[Kept]) -> None:
    """Write fits to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps([tuple(fit) for fit in fits]))


def load(path: Path) -> list[Kept]:
    """Read fits that `save` wrote; only files of your own, as they can hold code."""
    return [Kept(*fit) for fit in pickle.loads(path.read_bytes())]


@contextmanager
def priced_for(device: str, record: Path) -> Iterator[TimeModel]:
    """Within the block, fits with a budget of time take their prices from a record of another device."""
    table = _closest(read_tables(record), device, torch.float32)
    if table is None:
        raise SystemExit(
            f"{record} has no times of {device}; make them with python -m benchmarks.fitting.times"
        )
    model = TimeModel(device, table["vectors"], f"calibrated {table['made']}", table["series"])
    with mock.patch.object(runner, "time_model", return_value=model):
        yield model


class Fused:
    """A diagonal and rank-one terms in three operations that write into memory made beforehand."""

    def __init__(self, diagonal: torch.Tensor, basis: torch.Tensor, vectors: int) -> None:
        self.diagonal, self.left = diagonal, basis.T.contiguous()
        self.right = self.left.clone()  # times the weights
        n, rank = basis.shape
        self.inner, self.result = diagonal.new_empty(vectors, rank), diagonal.new_empty(vectors, n)
        self.columns = basis.contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        torch.mul(x, self.diagonal, out=self.result)
        if len(self.left):
            torch.mm(x, self.columns, out=self.inner)
            self.result.addmm_(self.inner, self.right)
        return self.result


class Transposed(Fused):
    """The same with Uᵀxᵀ instead of x U, which is faster with few columns on some machines."""

    def __init__(self, diagonal: torch.Tensor, basis: torch.Tensor, vectors: int) -> None:
        super().__init__(diagonal, basis, vectors)
        self.inner = self.inner.T.contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        torch.mul(x, self.diagonal, out=self.result)
        if len(self.left):
            torch.mm(self.left, x.T, out=self.inner)
            self.result.addmm_(self.inner.T, self.right)
        return self.result


class Multiple(Fused):
    """c·I and rank-one terms, c as the factor of one operation."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.left):
            return torch.mul(x, 0.5, out=self.result)
        torch.mm(x, self.columns, out=self.inner)
        return torch.addmm(x, self.inner, self.right, beta=0.5, out=self.result)


def plain_forms(n: int, rank: int, x: torch.Tensor, multiple: bool) -> list[Any]:
    """What is tried for a rival of low rank: the fastest counts."""
    generator = torch.Generator().manual_seed(rank)
    basis = torch.randn(n, rank, generator=generator).to(x.device, x.dtype)
    forms = (Fused, Transposed, Multiple) if multiple else (Fused, Transposed)
    return [form(torch.ones(n, device=x.device, dtype=x.dtype), basis, len(x)) for form in forms]


def vectors_on(device: str, n: int) -> torch.Tensor:
    """Rows to multiply with: as many as the model of times has for the device."""
    count = VECTORS[torch.device(device).type]
    return torch.randn(count, n, generator=torch.Generator().manual_seed(0)).to(device)


def least_seconds(runs: list[Any], x: torch.Tensor) -> list[float]:
    """The least of several measurements of each, taken in turn; calls follow each other, and the device's clock counts.

    On a CPU, the clock of the machine.
    """
    from benchmarks.common.timing import _seconds

    least = [np.inf] * len(runs)
    for run in runs:
        for _ in range(2):
            run(x)
    for _ in range(REPEATS):
        for index, run in enumerate(runs):
            run(x)  # keeps the device busy while the host prepares what is measured
            seconds = _seconds(lambda run=run: run(x), CALLS, x.device.type)
            least[index] = min(least[index], seconds)
    return least
