"""Angle against time: a part of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import Timed, timed
from benchmarks.fitting.compare import FIRST
from benchmarks.fitting.eigtj import eigtj_row
from benchmarks.fitting.quality import quality
from swallowtail import datasets
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.operators import Rotation, SymmetricOperator


def curve(quick: bool) -> list[Row]:
    """Angle against time: greedy growth, with a polish, built, and the default, beside eigtj, at several K."""
    matrices = {
        "n_mu=32": st.random_symmetric(64, 32, FIRST),
        "digits": datasets.digits_covariance(),
        "sensor Laplacian": datasets.sensor_laplacian(256, seed=FIRST),
    }
    if not quick:
        matrices["MNIST"] = datasets.mnist_covariance()[0]
    rows = []
    for matrix, H in matrices.items():
        n = len(H)
        paper = n * (n - 1).bit_length() // 2
        for K in (paper // 4, paper // 2, paper, 2 * paper, 4 * paper):
            ways: dict[str, Row] = {
                "swallowtail, grown": {"steps": 0, "cycles": 0, "finish": 0},
                "swallowtail, grown, 10 iterations": {"steps": 0, "cycles": 0, "finish": 10},
                "swallowtail, grown and polished": {"steps": 0, "cycles": 0},
                "swallowtail, built": {"cycles": 0},
                "swallowtail": {},
            }
            for name, arguments in ways.items():
                fit, wall, cpu = _best_of(lambda a=arguments, H=H, K=K: fit_pairs(H, K, **a))
                rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
                operator = SymmetricOperator(rotation, torch.from_numpy(fit.eigenvalues))
                row = {
                    "contender": name,
                    "n_rotations": rotation.n_rotations,
                    "seconds": wall,
                    "cpu_seconds": cpu,
                }
                rows.append(
                    {"part": "curve", "matrix": matrix, "n": n, "seed": FIRST}
                    | row
                    | quality(H, operator, n, FIRST)
                )
            kinds = ("sequential", "parallel") if n <= 256 else ("sequential",)
            for kind in kinds:
                found = min((eigtj_row(H, K, kind, FIRST) for _ in range(3 if n <= 256 else 1)), key=_cpu)
                rows.append({"part": "curve", "matrix": matrix, "n": n} | found)
    return [row for row in rows if "contender" in row]  # fmt: skip


def _best_of(run: Callable[[], Any]) -> Timed:
    """The quickest of up to five runs, a second in all: short ones are noisy."""
    done = [timed(run)]
    while len(done) < 5 and sum(one.cpu for one in done) < 1.0:
        done.append(timed(run))
    return min(done, key=lambda one: one.cpu)


def _cpu(row: Row) -> float:
    return float(row.get("cpu_seconds", np.inf))
