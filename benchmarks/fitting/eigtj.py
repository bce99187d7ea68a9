"""pyfaust's truncated Jacobi, the rival that also multiplies Givens rotations."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.apart import apart
from benchmarks.fitting.quality import quality

LIMIT = 240.0  # processor seconds of one call


def eigtj(H: np.ndarray, K: int, kind: str) -> tuple[Callable[[np.ndarray], np.ndarray], float, float]:
    """pyfaust's truncated Jacobi: the product with V diag(w) Vᵀ, wall and processor seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses an optional package
        from pyfaust.fact import eigtj as run
    many = {"nGivens_per_fac": 1} if kind == "sequential" else {}
    (w, V), wall, cpu = timed(
        lambda: run(H, nGivens=K, order="undef", enable_large_Faust=True, err_period=K, **many)
    )
    w, V = np.asarray(w).real, _multiplied(V)
    return lambda X: V @ (w[:, None] * (V.T @ X)), wall, cpu


def _multiplied(faust: Any) -> np.ndarray:  # shape: (n, n)
    """The product of sparse factors that differ from 1 in a few columns; faust.toarray() takes a minute for 15000."""
    V = np.asfortranarray(np.eye(faust.shape[0]))
    for k in range(faust.numfactors()):
        factor = faust.factors(k).tocoo()
        other = (factor.row != factor.col) | (factor.data != 1)
        at = np.unique(np.concatenate([factor.row[other], factor.col[other]]))
        V[:, at] = V[:, at] @ factor.tocsr()[at][:, at].toarray()
    return V


def eigtj_row(H: np.ndarray, K: int, kind: str, seed: int) -> Row:
    """eigtj as a row; large matrices in a process of their own, stopped after `LIMIT` processor seconds."""
    row: Row = {"seed": seed, "contender": f"eigtj {kind}", "n_rotations": K, "floats": K + len(H)}
    if not has_pyfaust():
        return {}
    if len(H) <= 256:
        apply, wall, cpu = eigtj(H, K, kind)
        return row | {"seconds": wall, "cpu_seconds": cpu} | quality(H, apply, len(H), seed)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "H.npy"))
        np.save(path, H)
        answer = apart({"task": "eigtj", "path": path, "K": K, "kind": kind, "seed": seed}, LIMIT)
    return row | (answer or {"note": f"stopped after {LIMIT:g} s"})


def has_pyfaust() -> bool:
    """Whether it is installed."""
    return find_spec("pyfaust") is not None
