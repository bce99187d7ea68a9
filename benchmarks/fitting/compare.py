"""Rows for every contender on one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.eigtj import eigtj_row
from benchmarks.fitting.quality import cost, quality
from swallowtail.fitting import rivals
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.methods.factor import fit_factor

FIRST = 9000  # of the seeds; development used others


def seeds(count: int, quick: bool) -> range:
    """``count`` seeds, two of them in a quick run."""
    return range(FIRST, FIRST + (min(count, 2) if quick else count))


def fit_row(H: np.ndarray, seed: int, contender: str = "swallowtail", **arguments: Any) -> tuple[Row, Any]:
    """One fit of a dense matrix, as a row, and its result."""
    result, wall, cpu = timed(lambda: st.fit_symmetric(H, seed=seed, **arguments))
    row = {"seed": seed, "contender": contender, "method": result.method, "status": result.status}
    row |= {"seconds": wall, "cpu_seconds": cpu} | cost(result.operator)
    return row | quality(H, result.operator, len(H), seed), result


def low_rank_rows(H: np.ndarray, operator: Any, seed: int) -> list[Row]:
    """c·I alone, and c·I + low rank of equal floats and equal multiply-adds, ranks rounded to the nearest."""
    n = len(H)
    ranks = {
        "c·I": 0,
        "c·I + low rank, equal floats": (operator.rotation.n_rotations + n - 1) / (n + 1),
        "c·I + low rank, equal multiply-adds": (operator.multiply_adds - n) / (2 * n),
    }
    ranks = {name: min(n, max(0, round(r))) for name, r in ranks.items()}
    cuts, wall, cpu = timed(lambda: rivals.low_rank(H, sorted(set(ranks.values()))))
    rows = []
    for name, r in ranks.items():
        row = {"seed": seed, "contender": name, "rank": r, "seconds": wall, "cpu_seconds": cpu}
        row |= {"floats": r * (n + 1) + 1, "multiply_adds": (2 * r + 1) * n}
        rows.append(row | quality(H, cuts[r], n, seed))
    return rows


def compare(
    part: str,
    matrix: str,
    H: np.ndarray,
    seed: int,
    fits: dict[str, Row],
    kinds: tuple[str, ...] = ("sequential", "parallel"),
) -> list[Row]:
    """Every fit asked for, the plain rivals of the first, and eigtj with as many rotations as each budget."""
    rows, first = [], None
    for name, arguments in fits.items():
        row, result = fit_row(H, seed, name, **arguments)
        first = result.operator if first is None else first
        rows.append(row)
    rows += low_rank_rows(H, first, seed)
    for K in dict.fromkeys(row["n_rotations"] for row in rows if "n_rotations" in row):
        rows += [eigtj_row(H, K, kind, seed) for kind in kinds]
    return [{"part": part, "matrix": matrix, "n": len(H)} | row for row in rows if row]


def warm_up() -> None:
    """Let Numba compile what will be timed."""
    torch.set_num_threads(1)
    H = st.random_symmetric(16, 3, 0)
    st.fit_symmetric(H)
    st.fit_symmetric(H, target="likelihood")
    st.fit_symmetric(H, method="sgd", epochs=1)
    st.fit_symmetric(lambda X: H @ X, 16, max_products=4)
    fit_factor(Factor(0.1, np.linalg.qr(np.ones((16, 2)) + H[:, :2])[0], np.ones(2)), 8)
