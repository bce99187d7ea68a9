"""Check and time the contenders: one row each."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import interleaved
from benchmarks.kernels import suites
from benchmarks.kernels.contenders import backward_memory
from benchmarks.kernels.suites import BATCH

# Relative; a wrong kernel is off by order one.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1.5e-3}


def chosen(device: str, quick: bool, only: list[str]) -> list[suites.Suite]:
    """The suites of a device; ``only`` those whose names begin so."""
    found = (suites.cuda if device == "cuda" else suites.cpu)(quick)
    return [suite for suite in found if not only or any(suite.name.startswith(name) for name in only)]


def measure(
    device: str, rounds: int, threads: int, of: list[suites.Suite], whole: bool, seconds: float
) -> Iterator[Row]:
    """Time every contender of some suites; ends the program if a result is wrong.

    ``whole``: threads and memory too. After so many ``seconds`` no further suite begins.
    """
    end = time.monotonic() + seconds
    for suite, n, batch, make, dtype in of:
        if time.monotonic() > end:
            print(f"ended after {seconds:g} s, before suite {suite!r}, n = {n}")
            return
        contenders = make()
        errors = {c.name: c.error() for c in contenders if c.error is not None}
        wrong = {name: error for name, error in errors.items() if not error < TOLERANCE[dtype]}
        if wrong:
            sys.exit(f"not reported: wrong results in suite {suite!r}, n = {n}: {wrong}")
        times = interleaved({c.name: c.run for c in contenders}, rounds, device, f"{suite} n={n}", threads)
        floor = np.median(times["copy"]) if "copy" in times else np.nan
        for c in contenders:
            low, middle, high = np.quantile(times[c.name], [0.2, 0.5, 0.8])
            yield {
                "suite": suite, "contender": c.name, "n": n, "batch": batch, "dtype": str(dtype)[6:],
                "threads": torch.get_num_threads(), "us_20": low * 1e6, "us_50": middle * 1e6, "us_80": high * 1e6,
                "over_copy": middle / floor, "multiply_adds": c.multiply_adds or "",
                "error": errors.get(c.name, ""),
            }  # fmt: skip
            print(
                f"{suite:12s} n={n:<6d} {c.name:30s} {middle * 1e6:10.1f} µs  {middle / floor:7.2f} × copy",
                flush=True,
            )
        del contenders  # they hold the data
    if device == "cpu" and whole:
        yield from _threads(rounds) + _memory()


def _threads(rounds: int) -> list[Row]:
    """The same product on one and on two threads."""
    Q, x = st.Rotation.random(4096, seed=0), torch.randn(BATCH, 4096)
    before = torch.get_num_threads()

    def on(count: int) -> Any:
        def run() -> None:
            torch.set_num_threads(count)
            Q(x)

        return run

    times = interleaved({"1": on(1), "2": on(2)}, rounds, "cpu", "threads")
    torch.set_num_threads(before)
    return [
        {
            "suite": "threads", "contender": "swallowtail Q", "n": 4096, "batch": BATCH, "dtype": "float32",
            "threads": int(count), "us_20": np.quantile(t, 0.2) * 1e6, "us_50": np.median(t) * 1e6,
            "us_80": np.quantile(t, 0.8) * 1e6,
        }
        for count, t in times.items()
    ]  # fmt: skip


def _memory() -> list[Row]:
    """Bytes that forward and backward take, by depth."""
    return [
        {
            "suite": "memory", "contender": f"forward+backward, depth {depth}", "n": 1024, "batch": 4096,
            "dtype": "float32", "threads": 1, "extra_bytes": backward_memory(1024, depth, 4096),
        }
        for depth in (1, 8)
    ]  # fmt: skip
