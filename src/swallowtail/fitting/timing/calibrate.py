"""Measuring this machine, once: the times that `TimeModel` interpolates. Only an explicit call does it."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swallowtail.errors import ArgumentError
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.timing.record import Table, calibration_file, read_tables, write_tables
from swallowtail.operators import HybridOperator, Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Grouped, Pairs, Wiring

# No powers of two: there butterflies are unusually fast, and products of large matrices unusually slow.
# Pairs have machine code from 16 coordinates on (8, in float64), so there is a step.
SIZES = (12, 17, 50, 250, 1000, 4000)
LARGEST_GROWN = 1000  # beyond this n a wiring is made of copies of a smaller one
TERMS = (1, 4, 16, 64)  # beside two rotations
RANKS = (1, 4, 10, 16, 32, 64)
DEPTHS = (1, 2, 8)  # of butterflies; short ones of depth 2 take a GPU no longer than starting them does
PER_ROW = (4, 16, 64)  # entries of a sparse matrix
VECTORS = {"cpu": 256, "cuda": 16384}  # fewer leave a GPU waiting for the host
DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float32, torch.bfloat16)}
REPEATS = 60  # measurements
LONG_ENOUGH = {"cpu": 0.4, "cuda": 0.05}  # seconds after which fewer measurements do
BACK_TO_BACK = 8  # calls in one measurement on a GPU

Progress = Callable[[int, int, str], None]  # called as progress(done, total, what is being measured)
Task = tuple[str, int, float, Callable[[torch.Tensor], Any]]  # series, n, amount, the product with rows x


def calibrate(
    device: Any = "cpu",
    progress: Progress | None = None,
    path: Path | None = None,
    *,
    sizes: tuple[int, ...] | None = None,
    dtypes: tuple[torch.dtype, ...] | None = None,
) -> Path:
    """Measure products on a device and keep the times; `fit_symmetric` with ``budget="time"`` then uses them.

    On a CPU one thread does 256 products at a time. On a GPU calls of 16384 products follow each other, and its own
    clock counts. Takes half a minute on a CPU, and a minute on a GPU, for compiling.

    Args:
        device: "cpu" or "cuda".
        progress: called as progress(done, total, label) before each measurement.
        path: of the record, by default in the user's cache folder; tables of other devices in it are kept.
        sizes: the n that are measured, `SIZES` by default; fewer take less time.
        dtypes: that are measured; float32 and, on a CPU, float64, on a GPU bfloat16 by default.

    Returns:
        The path of the record.
    """
    device = torch.device(device)
    path = calibration_file() if path is None else path
    if path is None:
        raise ArgumentError("path", "a path, as this user has no home folder", "none", "set XDG_CACHE_HOME")
    tables = read_tables(path)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        wirings = {n: _chosen(n) for n in sizes or SIZES}
        tasks = {dtype: list(_tasks(device, dtype, wirings)) for dtype in dtypes or DTYPES[device.type]}
        total, done = sum(map(len, tasks.values())), 0
        for dtype, of_dtype in tasks.items():
            name = str(dtype).removeprefix("torch.")
            table = _empty_table(device)
            for series, n, amount, run in of_dtype:
                if progress is not None:
                    progress(done, total, f"{series}, n = {n}, {name}")
                x = torch.randn(VECTORS[device.type], n, generator=torch.Generator().manual_seed(0))
                points = table["series"].setdefault(series, {}).setdefault(n, [])
                points.append((amount, _seconds(run, x.to(device, dtype))))
                done += 1
            tables[f"{device.type} {name}"] = table
    finally:
        torch.set_num_threads(threads)
    write_tables(path, tables)
    return path


def _empty_table(device: torch.device) -> Table:
    hardware = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine()
    )
    made = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"vectors": VECTORS[device.type], "made": made, "hardware": hardware, "series": {}}


def _chosen(n: int) -> np.ndarray:  # shape: (K, 2)
    """Pairs as a fit chooses them, n⌈lg n⌉ of them: grown on a kernel of random points in the plane."""
    m = min(n, LARGEST_GROWN)
    points = np.random.default_rng(0).uniform(size=(m, 2)) * m**0.5
    H = np.exp(-np.linalg.norm(points[:, None] - points, axis=-1) / 2)
    pairs = fit_pairs(H, m * (m - 1).bit_length(), cycles=0, finish=0).wiring.flat_pairs()
    copies = pairs[:, None, :] + m * np.arange(n // m)[:, None]
    return np.ascontiguousarray(copies.reshape(-1, 2))


def _tasks(device: torch.device, dtype: torch.dtype, wirings: dict[int, np.ndarray]) -> Iterator[Task]:
    for n in wirings:
        generator = torch.Generator().manual_seed(n)

        def draw(*shape: int, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(device, dtype)

        few = _symmetric(Pairs.from_sequence(n, wirings[n][:2])[0], draw)
        yield "pairs", n, 2 / n, few._rows
        yield "grouped", n, 2 / n, few._rows
        for rank in TERMS:
            yield "hybrid", n, rank, HybridOperator(few, draw(n, rank), draw(rank))._rows
        for share in (0.25, 0.5, 1.0):
            pairs = wirings[n][: max(3, int(share * len(wirings[n])))]
            wiring = Pairs.from_sequence(n, pairs)[0]
            for name, form in (("pairs", wiring), ("grouped", Grouped.from_wiring(wiring))):
                yield name, n, len(pairs) / n, _symmetric(form, draw)._rows
        for depth in DEPTHS:
            butterfly = Butterfly(n, depth)
            yield "butterfly", n, butterfly.n_rotations / n, _symmetric(butterfly, draw)._rows
        yield "plain", n, 0, _symmetric(Pairs(n, []), draw)._rows
        for rank in RANKS:
            plain = HybridOperator.without_rotations(draw(n), draw(n, rank), draw(rank))
            yield "plain", n, rank, plain._rows
        yield "dense", n, 0, partial(torch.mm, mat2=draw(n, n))
        if device.type == "cpu":
            yield from _sparse(n, dtype)


def _symmetric(wiring: Wiring, draw: Callable[..., torch.Tensor]) -> SymmetricOperator:
    return SymmetricOperator(Rotation(wiring, draw(wiring.n_rotations)), draw(wiring.n))


def _sparse(n: int, dtype: torch.dtype) -> Iterator[Task]:
    from scipy.sparse import csr_array

    for count in PER_ROW:
        if count < n:
            rows = np.repeat(np.arange(n), count)
            columns = np.random.default_rng(n).integers(0, n, len(rows))
            values = np.ones(len(rows), np.float64 if dtype == torch.float64 else np.float32)
            matrix = csr_array((values, (rows, columns)), shape=(n, n))
            yield "sparse", n, matrix.nnz / n, partial(_times_rows, matrix)


def _times_rows(matrix: Any, x: torch.Tensor) -> Any:
    return matrix @ x.numpy().T


def _seconds(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    """The least of several measurements, after two that compile and fill caches.

    On a CPU, of the thread's own time: it does not count while others have the processor.
    """
    best, spent, once = np.inf, 0.0, _on_a_gpu if x.is_cuda else _on_a_cpu
    for index in range(REPEATS + 2):
        taken = once(run, x)
        if index < 2:
            continue
        best, spent = min(best, taken), spent + taken
        if spent > LONG_ENOUGH[x.device.type] and index > 5:
            break
    return float(best)


def _on_a_cpu(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    begin = time.thread_time()
    run(x)
    return time.thread_time() - begin


def _on_a_gpu(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    """Per call, by the clock of the device; a first call keeps it busy while the host prepares the next."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run(x)
    begin.record()
    for _ in range(BACK_TO_BACK):
        run(x)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / BACK_TO_BACK
