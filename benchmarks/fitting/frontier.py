"""Angle against the measured time of a product: python -m benchmarks.fitting.frontier [--report]

Our forms beside low rank, a diagonal + low rank and the dense matrix, each in several sizes, in float32 on one thread
of this CPU, 256 vectors at a time; in about four minutes. Times are the least of many measurements, taken in turn.
Members of the budget's family are chosen by a calibration of this machine, made first. Rows go to
benchmarks/results/fitting-frontier.csv, the plot to docs/frontier.png. --report draws the rows there are.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

import swallowtail as st
from benchmarks.common.pages import ROOT
from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.common.threads import one_thread
from benchmarks.fitting.budgets import VECTORS, fused, least_seconds
from benchmarks.fitting.held_out import SEED
from swallowtail import datasets
from swallowtail.fitting.methods.low_rank import diagonal_low_rank, low_rank
from swallowtail.fitting.timing import calibrate
from swallowtail.operators import HybridOperator

FILE, PICTURE = "fitting-frontier", ROOT / "docs" / "frontier.png"
SHARES = (0.25, 0.5, 1, 2, 4)  # of the paper's number of rotations
RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
DENSE = "dense"
STYLES = {
    "rotations on chosen pairs": ("#000000", "D-"),
    "rotations in groups": ("#0072B2", "s-"),
    "butterfly": ("#56B4E9", "o-"),
    "best at a budget of time": ("#009E73", "*-"),
    "c·I + low rank": ("#D55E00", "v--"),
    "diagonal + low rank": ("#E69F00", "^--"),
}


def matrices() -> Iterator[tuple[str, np.ndarray]]:
    """Name and matrix."""
    yield "MNIST's covariance", datasets.mnist_covariance()[0]
    points = np.random.default_rng(SEED).uniform(size=(400, 2)) * 20
    t = 3**0.5 * np.linalg.norm(points[:, None] - points, axis=-1) / 3
    yield "Matérn kernel in the plane", (1 + t) * np.exp(-t) + 1e-6 * np.eye(400)
    n = 300
    F = np.random.default_rng(SEED + 1).standard_normal((n, 6))
    returns = np.random.default_rng(SEED + 2).multivariate_normal(np.zeros(n), F @ F.T + 2 * np.eye(n), 900)
    yield "returns with six factors", np.cov(returns, rowvar=False)


def contenders(H: np.ndarray) -> Iterator[tuple[str, Row, Any]]:
    """Contender, columns that say how large it is, and the operator."""
    n = len(H)
    paper = n * (n - 1).bit_length() // 2
    for share in SHARES:
        K = int(share * paper)
        for name, method in (("rotations on chosen pairs", "pairs"), ("rotations in groups", "grouped")):
            yield (
                name,
                {"n_rotations": K},
                st.fit_symmetric(H, n_rotations=K, method=method, seed=SEED).operator,
            )
    for depth in (1, 2, 4):
        fit = st.fit_symmetric(H, wiring="butterfly", depth=depth, seed=SEED)
        yield "butterfly", {"n_rotations": fit.operator.rotation.n_rotations}, fit.operator
    source = torch.from_numpy(H).float()
    for share in SHARES:
        seconds = st.fit_symmetric(
            source, n_rotations=int(share * paper), effort="quick", symmetrize=True
        ).time
        fit = st.fit_symmetric(source, budget=("time", seconds), seed=SEED, symmetrize=True)
        size = {"n_rotations": fit.operator.rotation.n_rotations, "rank": getattr(fit.operator, "rank", 0)}
        yield "best at a budget of time", size, fit.operator
    ranks = [r for r in RANKS if r <= n // 3]
    cuts = low_rank(H, ranks)
    for r in ranks:
        for name, form in (
            ("c·I + low rank", cuts[r]),
            ("diagonal + low rank", diagonal_low_rank(H, r, cuts[r])),
        ):
            numbers = (torch.from_numpy(np.ascontiguousarray(a)) for a in (form.diagonal, form.V, form.w))
            yield name, {"rank": r}, HybridOperator.without_rotations(*numbers)


def measure() -> list[Row]:
    """Every contender on every matrix."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
        calibrate()
        for matrix, H in matrices():
            n, found = len(H), list(contenders(H))
            x = torch.randn(VECTORS, n, generator=torch.Generator().manual_seed(0))
            dense = torch.from_numpy(H).float()
            runs = [_run(name, operator.to("cpu", torch.float32)) for name, _, operator in found]
            *seconds, whole = least_seconds([*runs, lambda x, dense=dense: torch.mm(x, dense)], x)
            same = {"part": "frontier", "matrix": matrix, "n": n, "seed": SEED, "vectors": VECTORS}
            for (name, size, operator), taken in zip(found, seconds, strict=True):
                angle = st.error_angle(H, operator.to("cpu", torch.float64), 1000, SEED)
                rows.append(same | {"contender": name, "measured_seconds": taken, "angle": angle} | size)
            rows.append(same | {"contender": DENSE, "measured_seconds": whole, "angle": 0.0})
    return rows


def _run(name: str, operator: Any) -> Any:
    """What is timed: low rank without rotations in its fastest form."""
    return fused(operator.symmetric.eigenvalues, operator.basis) if name.endswith("low rank") else operator


def plot(
    rows: list[Row],
    picture: Path = PICTURE,
    where: str = "Float32 on one thread of a CPU",
    unit: str = "µs for 256 products",
) -> Path:
    """A panel for each matrix."""
    names = list(dict.fromkeys(row["matrix"] for row in rows))
    figure = Figure(figsize=(4.4 * len(names), 4.6), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        here = [row for row in rows if row["matrix"] == name]
        for contender, (color, style) in STYLES.items():
            points = [
                (1e6 * float(row["measured_seconds"]), float(row["angle"]))
                for row in here
                if row["contender"] == contender
            ]
            axis.plot(*zip(*points, strict=True), style, color=color, label=contender, markersize=5)
        (dense,) = (1e6 * float(row["measured_seconds"]) for row in here if row["contender"] == DENSE)
        axis.axvline(dense, color="#999999", linestyle=":", label="dense product, exact")
        axis.set(xscale="log", yscale="log", xlabel=unit, title=f"{name}, n = {here[0]['n']}")
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(LogLocator(subs=(1, 2, 5)))
            one.set_major_formatter("{x:g}")
            one.set_minor_formatter(NullFormatter())
    figure.axes[0].set_ylabel("angle, degrees")
    figure.suptitle(f"{where}: further down and to the left is better")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(picture, dpi=110)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="draw the rows there are")
    if parser.parse_args().report:
        rows = read_rows(FILE)
    else:
        with one_thread():
            rows = measure()
        write_rows(FILE, rows, "python -m benchmarks.fitting.frontier")
    print(plot(rows))


if __name__ == "__main__":
    main()
