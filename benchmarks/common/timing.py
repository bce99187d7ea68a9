"""Timing: one call, or several contenders in turn."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm


class Timed(NamedTuple):
    """What a call returned and the seconds it took, by the clock and of the processor."""

    result: Any
    wall: float
    cpu: float


def timed(run: Callable[[], Any]) -> Timed:
    """Call ``run`` once. On a shared machine only the processor's seconds are its own."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return Timed(result, time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(
    runs: dict[str, Callable[[], Any]],
    rounds: int,
    device: str,
    label: str,
    threads: int = 1,
) -> dict[str, np.ndarray]:
    """Seconds per call of each function, ``rounds`` times, in turn, so that noise from outside meets all alike.

    Each measurement repeats a short call until it lasts about 10 ms, 20 ms on a GPU. Before that the call runs for a
    third of that without being measured: while the others ran, its data and code have left the caches (on a shared
    machine the first call after 10 ms takes up to twice as long), and a GPU has become idle.
    """
    torch.set_num_threads(threads)  # some packages change it when they are imported
    # On a GPU the first launch of a measurement finds the device idle: let it weigh little.
    least = 20e-3 if device == "cuda" else 10e-3
    inner = {}
    for name, run in runs.items():
        run()
        inner[name] = max(1, int(least / max(_seconds(run, 1, device), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in tqdm(range(rounds), desc=label, leave=False, disable=not sys.stderr.isatty()):
        for name, run in runs.items():
            for _ in range(max(1, inner[name] // 3)):
                run()
            times[name].append(_seconds(run, inner[name], device))
    return {name: np.array(values) for name, values in times.items()}


def keep_freed_memory() -> None:
    """Tell the C library to keep freed memory instead of returning it to the system.

    Otherwise it is chance whether a result of a few MiB lies on new pages, and the system clears new pages first:
    for 4 MiB that takes longer than a rotation of as much data.
    """
    if sys.platform == "linux":
        libc, trim_threshold, mmap_threshold = ctypes.CDLL(None), -1, -3  # numbers from malloc.h
        if hasattr(libc, "mallopt"):
            libc.mallopt(mmap_threshold, 32 << 20)
            libc.mallopt(trim_threshold, 1 << 30)


def _seconds(run: Callable[[], Any], repeats: int, device: str) -> float:
    if device == "cuda":
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            run()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3 / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats
