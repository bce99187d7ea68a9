"""Interleaved timing, machine facts and CSV rows: what every benchmark shares."""

from __future__ import annotations

import csv
import ctypes
import datetime
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

RESULTS = Path(__file__).parent / "results"


def interleaved(
    runs: dict[str, Callable[[], Any]],
    rounds: int,
    device: str,
    label: str,
    threads: int = 1,
    least: float = 10e-3,
) -> dict[str, np.ndarray]:
    """Seconds a call of each function, ``rounds`` times, in turn, so that a noisy neighbour troubles all alike.

    Each measurement repeats a short call until it lasts about ``least`` seconds. Before that it runs for a third of
    them: while the others ran, data and code have left the caches (on a shared machine the first call after 10 ms takes
    up to twice as long), and a GPU has become idle. Otherwise that would count a lot for long calls, little for short.
    """
    torch.set_num_threads(threads)  # some packages change it when they are imported
    if device == "cuda":
        least = 50e-3  # the first launch of a measurement finds the device idle: let it weigh little
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
    """Tell the C library to keep what is freed. Otherwise results of a few MiB come on new pages or on old ones, as it
    happens, and clearing 4 MiB of new pages takes longer than rotating as much: no contender's doing.
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


def machine(device: str = "cpu") -> dict[str, str]:
    """Hardware and versions, for every row."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = f"{models[0] if models else platform.processor()}, {len(models) or '?'} cores"
    versions = " ".join(f"{package} {_version(package)}" for package in ("torch", "numba", "triton", "numpy"))
    return {"hardware": name, "versions": f"python {platform.python_version()} {versions}"}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "-"


def write_rows(name: str, rows: list[dict[str, Any]], command: str, device: str = "cpu") -> Path:
    """Write ``results/<name>.csv``, each row with the machine, the versions, the day and the command."""
    facts = {**machine(device), "date": datetime.date.today().isoformat(), "command": command}
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row)) + list(facts)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**{k: _short(v) for k, v in row.items()}, **facts})
    return path


def read_rows(name: str) -> list[dict[str, str]]:
    """The committed rows."""
    with (RESULTS / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
