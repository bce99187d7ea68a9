"""What a fit costs beside an eigendecomposition: python -m benchmarks.fitting.effort [--report]

Quick and default fits of matrices that development did not use, on one core, in about two minutes. Everything that a
call does is counted: the fit, its measuring and its rivals. Rows go to benchmarks/results/fitting-effort.csv, a table
to docs/benchmarks.md; bars are printed as met or MISSED. --report measures nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import swallowtail as st
from benchmarks.common.bars import Bar
from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.common.threads import one_thread
from benchmarks.common.timing import timed
from swallowtail import datasets

FILE = "fitting-effort"
SIZES = (64, 200, 400, 784)
SEED = 9800  # fits were changed after a look at matrices of seeds 9000 and 9700
EFFORTS = ("quick", "default")


def matrices(n: int) -> Iterator[tuple[str, np.ndarray]]:
    """Name and matrix."""
    if n == 784:
        yield "MNIST", datasets.mnist_covariance()[0]
    generator = np.random.default_rng(SEED)
    for large in (5, n // 2):
        yield f"synthetic, {large} large eigenvalues", np.asarray(st.random_symmetric(n, large, SEED))
    yield "heat kernel of a graph", datasets.sensor_heat_kernel(n, seed=SEED)
    points = generator.uniform(size=(n, 2)) * n**0.5
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    yield "Matérn kernel in the plane", (1 + apart / 2) * np.exp(-apart / 2)
    line = np.sort(generator.uniform(size=n)) * n
    yield "exponential kernel on a line", np.exp(-np.abs(line[:, None] - line) / 8)
    returns = generator.standard_normal((4 * n, n)) @ np.diag(1 / np.arange(1, n + 1) ** 0.6)
    yield "covariance with a power law", np.cov(returns @ st.random_orthogonal(n, SEED), rowvar=False)


def measure() -> list[Row]:
    """Every effort on every matrix: the least processor seconds of three calls, or of one that is long."""
    rows = []
    for n in SIZES:
        for name, H in matrices(n):
            decomposition = _least(lambda H=H: np.linalg.eigh(H), 9).cpu
            for effort in EFFORTS:
                found = _least(
                    lambda H=H, effort=effort: st.fit_symmetric(H, effort=effort, seed=SEED),
                    4 if effort == "quick" else 2,
                )
                rows.append(
                    {
                        "part": "effort",
                        "matrix": name,
                        "n": n,
                        "seed": SEED,
                        "effort": effort,
                        "n_rotations": found.result.operator.rotation.n_rotations,
                        "angle": st.error_angle(H, found.result.operator, 2000, SEED),
                        "cpu_seconds": found.cpu,
                        "eigh_cpu_seconds": decomposition,
                    }
                )
    return rows


def _least(run: Callable[[], Any], repeats: int) -> Any:
    return min((timed(run) for _ in range(repeats)), key=lambda one: one.cpu)


def ratios(rows: list[Row], n: int) -> dict[str, list[float]]:
    """By effort, seconds over those of an eigendecomposition; and "angle": quick over default."""
    here = [row for row in rows if int(row["n"]) == n]
    found = {
        effort: [
            float(row["cpu_seconds"]) / float(row["eigh_cpu_seconds"])
            for row in here
            if row["effort"] == effort
        ]
        for effort in EFFORTS
    }
    quick, default = ([float(row["angle"]) for row in here if row["effort"] == e] for e in EFFORTS)
    return found | {"angle": [a / b for a, b in zip(quick, default, strict=True)]}


def effort_bars(rows: list[Row]) -> Iterator[Bar]:
    """Limits on the median over the matrices, and on the mean angle."""
    for n, limit in ((200, 20.0), (784, 8.0)):
        yield Bar(f"quick, n={n}: times an eigendecomposition", _median(ratios(rows, n)["quick"]), "≤", limit)
    for n in SIZES:
        yield Bar(
            f"quick, n={n}: angle over the default's, mean",
            float(np.mean(ratios(rows, n)["angle"])),
            "≤",
            1.15,
        )
    mnist = [row for row in rows if row["matrix"] == "MNIST" and row["effort"] == "default"]
    yield Bar("default, MNIST: seconds", float(mnist[0]["cpu_seconds"]), "≤", 1.6)


def _median(values: list[float]) -> float:
    return float(np.median(values))


def section(rows: list[Row]) -> list[str]:
    """A table for docs/benchmarks.md."""
    count = len({(row["matrix"], row["n"]) for row in rows})
    lines = [
        "### What a fit costs",
        "",
        f"`fit_symmetric(H)` beside `numpy.linalg.eigh(H)`, on {count} matrices that development did not use: seconds",
        "of the processor on one thread, with everything compiled. A fit's time includes measuring it and its rivals.",
        "Times are medians over the matrices; angles are means, with the largest in brackets. The machine was busy.",
        "",
        "| n | quick ÷ eigh | default ÷ eigh | quick's angle ÷ default's |",
        "|---|---|---|---|",
    ]
    for n in SIZES:
        found = ratios(rows, n)
        cost = " | ".join(f"{_median(found[effort]):.3g}" for effort in EFFORTS)
        lines.append(f"| {n} | {cost} | {np.mean(found['angle']):.2f} ({max(found['angle']):.2f}) |")
    mnist = {row["effort"]: row for row in rows if row["matrix"] == "MNIST"}
    seconds = [f"{float(mnist[e]['cpu_seconds']):.2f} s ({float(mnist[e]['angle']):.1f}°)" for e in EFFORTS]
    return [
        *lines,
        "",
        f'MNIST\'s covariance takes {seconds[0]} with `effort="quick"` and {seconds[1]} by default.',
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="bars and table of the rows there are")
    if parser.parse_args().report:
        rows = read_rows(FILE)
    else:
        with one_thread():
            st.fit_symmetric(np.eye(8) + 1.0)  # compile
            rows = measure()
        write_rows(FILE, rows, "python -m benchmarks.fitting.effort")
    replace_between(BENCHMARKS, "<!-- effort -->", "<!-- end effort -->", section(rows))
    for bar in effort_bars(rows):
        print(bar.line(75, "9.3g"))


if __name__ == "__main__":
    main()
