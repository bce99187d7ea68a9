"""A million rows: the memory and the time of fitting in pieces and of scoring."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.gaussians.rivals import N
from swallowtail.gaussians.covariance import GivensCovariance
from swallowtail.gaussians.mixture import GivensMixture


def many_rows(count: int) -> list[Row]:
    """``count`` × 1024 rows through partial_fit in a process of its own, to see its memory."""
    peak, seconds = _apart(_many_rows, count)
    tqdm.write(f"{count} × 1024 rows: peak memory {peak / 2**20:.0f} MiB, {seconds:.0f} s")
    return [
        {"task": "rows", "method": "partial_fit", "rows": count, "peak_bytes": peak, "fit_seconds": seconds}
    ]


def _apart(work: Callable[[int], tuple[int, float]], count: int) -> tuple[int, float]:
    """``work(count)`` in a fresh process. If it is killed, for its memory, that is an error and no wait."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, count).result()


def _many_rows(count: int) -> tuple[int, float]:
    torch.set_num_threads(1)
    rng, model, start = np.random.default_rng(0), GivensCovariance(random_state=0), time.process_time()
    scale = np.logspace(-2, 2, 1024, dtype=np.float32)
    for first in tqdm(range(0, count, 4096), desc="rows"):
        x = rng.standard_normal((min(4096, count - first), 1024), dtype=np.float32)
        x[:, 1:] += 0.5 * x[:, :-1]
        model.partial_fit(x * scale)
    assert np.isfinite(model.score(x * scale))
    # Not getrusage's maximum: Linux lets a spawned process inherit its parent's.
    return _memory("VmHWM"), time.process_time() - start


def many_scores(count: int) -> list[Row]:
    """A mixture's score_samples on ``count`` × 784 rows of a file mapped into memory, in a process of its own."""
    peak, seconds = _apart(_many_scores, count)
    tqdm.write(f"score_samples, {count} × {N}: peak memory {peak / 2**20:.0f} MiB, {seconds:.1f} s")
    row = {"task": "score", "method": "score_samples", "rows": count, "peak_bytes": peak}
    return [{**row, "score_seconds": seconds}]


def _many_scores(count: int) -> tuple[int, float]:
    """Peak of the process' memory while it scores, less the file's own pages; seconds."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((N, N), dtype=np.float32) / np.sqrt(N, dtype=np.float32)
    block = rng.standard_normal((10_000, N), dtype=np.float32) @ basis
    block += rng.integers(0, 3, (len(block), 1))
    model = GivensMixture(3, n_rotations=2000, max_iter=5, random_state=0).fit(block[:2000])
    with tempfile.TemporaryDirectory() as folder:
        X = np.memmap(Path(folder) / "rows", np.float32, "w+", shape=(count, N))
        for first in tqdm(range(0, count, len(block)), desc="writing"):
            X[first : first + len(block)] = block[: count - first]
        X.flush()
        model.score_samples(X[:1000])
        peak, done = [_memory("RssAnon")], threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                peak[0] = max(peak[0], _memory("RssAnon"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        logs, _, seconds = timed(lambda: model.score_samples(X))
        done.set()
        watcher.join()
    assert logs.shape == (count,)
    assert np.isfinite(logs).all()
    return peak[0], seconds


def _memory(name: str) -> int:
    """Bytes of this process, as Linux counts them under that name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024
