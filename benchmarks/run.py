"""The kernel benchmark: python -m benchmarks.run [--device cuda] [--quick]

Times every contender in turn, refuses to report if a checked result is wrong, writes
benchmarks/results/kernels-<device>.csv and prints which bars are met.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks import registry
from benchmarks.registry import Contender
from benchmarks.timing import interleaved, keep_freed_memory, write_rows

BATCH = 256
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}  # relative; a wrong kernel is off by order one


def suites_cpu(quick: bool) -> list[tuple[str, int, int, list[Contender], torch.dtype]]:
    sizes = (1024, 4096) if quick else (64, 256, 1024, 4096, 16384)
    result = []
    for n in sizes:
        result.append(("rotate", n, BATCH, registry.rotate(n, BATCH, "cpu", peers=n <= 4096), torch.float32))
        result.append(("symmetric", n, BATCH, registry.symmetric(n, BATCH, "cpu"), torch.float32))
        if n <= 4096:
            result.append(("training", n, BATCH, registry.training(n, BATCH, "cpu"), torch.float32))
            result.append(("one vector", n, 1, registry.one_vector(n), torch.float32))
    result.append(("pairs", 784, BATCH, registry.pairs("cpu", BATCH), torch.float32))
    return result


def suites_cuda(quick: bool) -> list[tuple[str, int, int, list[Contender], torch.dtype]]:
    result = []
    total = 2**27  # numbers: 512 MiB of float32, far beyond the L2 cache
    for n in (1024, 4096) if quick else (64, 256, 1024, 4096, 16384):
        batch = total // n
        result.append(("rotate", n, batch, registry.rotate(n, batch, "cuda"), torch.float32))
        result.append(("symmetric", n, batch, registry.symmetric(n, batch, "cuda"), torch.float32))
        if n in (256, 1024):
            half = torch.bfloat16
            result.append(("rotate bf16", n, batch, registry.rotate(n, batch, "cuda", half), half))
        if n == 1024:
            result.append(("training", n, batch, registry.training(n, batch, "cuda"), torch.float32))
    batch = total // 784
    result.append(("pairs", 784, batch, registry.pairs("cuda", batch), torch.float32))
    return result


def measure(device: str, rounds: int, threads: int, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for suite, n, batch, contenders, dtype in (suites_cuda if device == "cuda" else suites_cpu)(quick):
        errors = {c.name: c.error() for c in contenders if c.error is not None}
        wrong = {name: error for name, error in errors.items() if not error < TOLERANCE[dtype]}
        if wrong:
            sys.exit(f"not reported: wrong results in suite {suite!r}, n = {n}: {wrong}")
        times = interleaved({c.name: c.run for c in contenders}, rounds, device, f"{suite} n={n}", threads)
        floor = np.median(times["copy"]) if "copy" in times else np.nan
        for c in contenders:
            low, middle, high = np.quantile(times[c.name], [0.2, 0.5, 0.8])
            rows.append(
                {
                    "suite": suite, "contender": c.name, "n": n, "batch": batch, "dtype": str(dtype)[6:],
                    "threads": torch.get_num_threads(), "us_20": low * 1e6, "us_50": middle * 1e6, "us_80": high * 1e6,
                    "over_copy": middle / floor, "multiply_adds": c.multiply_adds or "",
                    "error": errors.get(c.name, ""),
                }
            )  # fmt: skip
            print(
                f"{suite:12s} n={n:<6d} {c.name:30s} {middle * 1e6:10.1f} µs  {middle / floor:7.2f} × copy",
                flush=True,
            )
    if device == "cpu":
        rows += _threads(rounds) + _memory()
    return rows


def _threads(rounds: int) -> list[dict[str, Any]]:
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


def _memory() -> list[dict[str, Any]]:
    return [
        {
            "suite": "memory", "contender": f"forward+backward, depth {depth}", "n": 1024, "batch": 4096,
            "dtype": "float32", "threads": 1, "extra_bytes": registry.backward_memory(1024, depth, 4096),
        }
        for depth in (1, 8)
    ]  # fmt: skip


def bars_cpu(rows: list[dict[str, Any]]) -> list[tuple[str, float, str, float]]:
    t = lambda suite, name, n: _median(rows, suite, name, n)
    result = []
    for n, q, h, dense in ((1024, 0.9, 1.8, 30), (4096, 0.7, 1.4, 60)):
        fft = t("rotate", "rfft", n)
        result += [
            (f"Q / rfft, n={n}", t("rotate", "swallowtail Q", n) / fft, "≤", q),
            (f"dense / Q, n={n}", t("rotate", "dense", n) / t("rotate", "swallowtail Q", n), "≥", dense),
            (f"H / rfft, n={n}", t("symmetric", "swallowtail H", n) / t("symmetric", "rfft", n), "≤", h),
            (f"H / low rank, n={n}", t("symmetric", "swallowtail H", n) / t("symmetric", "c·I", n), "≤", 1.0),
        ]
    result.append(
        (
            "forward+backward / rfft, n=1024",
            t("training", "swallowtail", 1024) / t("training", "rfft", 1024),
            "≤",
            5,
        )
    )
    for n, bar in ((1024, 6), (4096, 80)):
        result.append(
            (
                f"one vector: dense / Q, n={n}",
                t("one vector", "dense", n) / t("one vector", "swallowtail Q", n),
                "≥",
                bar,
            )
        )
    one, two = (
        next(r["us_50"] for r in rows if r["suite"] == "threads" and r["threads"] == k) for k in (1, 2)
    )
    result.append(("two threads, speed-up at n=4096", one / two, "≥", 1.6))
    a_rotation = t("pairs", "swallowtail pairs Q", 784) / 3920 / (t("pairs", "butterfly", 784) / 5120)
    result.append(("pairs / butterfly, time a rotation", a_rotation, "≤", 2))
    extra = [r["extra_bytes"] for r in rows if r["suite"] == "memory"]
    result.append(("memory of backward, depth 8 / depth 1", extra[1] / extra[0], "≤", 1.1))
    return result


def bars_cuda(rows: list[dict[str, Any]]) -> list[tuple[str, float, str, float]]:
    over = lambda suite, name, n: _median(rows, suite, name, n) / _median(rows, suite, "copy", n)
    result = []
    for n, q, h in ((64, 1.1, 1.6), (256, 1.1, 1.6), (1024, 1.1, 1.6), (4096, 1.5, 2.6), (16384, 2.2, 5.0)):
        if any(r["n"] == n for r in rows):
            result.append((f"Q / copy, n={n}", over("rotate", "swallowtail Q", n), "≤", q))
            result.append((f"H / copy, n={n}", over("symmetric", "swallowtail H", n), "≤", h))
    result.append(("Q bf16 / copy, n=1024", over("rotate bf16", "swallowtail Q", 1024), "≤", 1.5))
    result.append(("forward+backward / copy, n=1024", over("training", "swallowtail", 1024), "≤", 4.5))
    result.append(("pairs Q / copy, n=784, K=3920", over("pairs", "swallowtail pairs Q", 784), "≤", 12))
    return result


def _median(rows: list[dict[str, Any]], suite: str, name: str, n: int) -> float:
    found = [
        r["us_50"] for r in rows if r["suite"] == suite and r["n"] == n and r["contender"].startswith(name)
    ]
    return float(found[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1, help="of torch and of our CPU kernels")
    parser.add_argument("--quick", action="store_true", help="two sizes only; rows are not written")
    options = parser.parse_args()
    keep_freed_memory()
    rows = measure(options.device, options.rounds, options.threads, options.quick)
    if not options.quick:
        command = "python -m benchmarks.run" + (
            f" --device {options.device}" if options.device != "cpu" else ""
        )
        print("rows:", write_rows(f"kernels-{options.device}", rows, command, options.device))
    for name, value, sign, bar in (bars_cuda if options.device == "cuda" else bars_cpu)(rows):
        met = value <= bar if sign == "≤" else value >= bar
        print(f"{'met   ' if met else 'MISSED'} {name:42s} {value:8.2f} {sign} {bar:g}")


if __name__ == "__main__":
    main()
