"""Fits and plain rivals as rows, the same for every figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from swallowtail.experiments.common.rows import Row
from swallowtail.fitting import rivals
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.result import count_bytes, count_floats
from swallowtail.metrics import error_angle
from swallowtail.operators import Rotation, SymmetricOperator

PROBES = 2000  # x for an angle


def as_operator(fit: Any) -> SymmetricOperator | Rotation:
    """The operator of a fit's wiring and angles, with its eigenvalues where it has them."""
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    if fit.eigenvalues is None:
        return rotation
    return SymmetricOperator(rotation, torch.from_numpy(fit.eigenvalues))


def fit_row(H: np.ndarray, method: str, fit: Callable[[], Any], seed: int) -> tuple[Row, Any]:
    """One fit: what it reached, on fresh x, what it costs and the processor time it took; and its operator."""
    begin = time.process_time()
    operator = as_operator(fit())
    seconds = time.process_time() - begin
    rotation: Any = getattr(operator, "rotation", operator)
    return {
        "method": method,
        "angle": error_angle(H, operator, PROBES, seed + 1),
        "rotations": rotation.n_rotations,
        "floats": count_floats(operator),
        "bytes": count_bytes(operator),
        "multiply_adds": operator.multiply_adds,
        "seconds": seconds,
    }, operator


def rival_rows(H: np.ndarray, operator: Any, seed: int) -> list[Row]:
    """c·I alone, and c·I + low rank with as many floats, bytes and multiply-adds as ``operator``."""
    n = len(H)
    ranks = {"c·I": 0}
    ranks |= {f"c·I + low rank, equal {name}": rank for name, rank in rivals.equal_ranks(operator).items()}
    cuts = rivals.low_rank(H, sorted(set(ranks.values())))
    return [
        {
            "method": name,
            "angle": error_angle(H, cuts[rank], PROBES, seed + 1),
            "rank": rank,
            "floats": rank * (n + 1) + 1,
            "bytes": 4 * (rank * (n + 1) + 1),
            "multiply_adds": (2 * rank + 1) * n,
        }
        for name, rank in ranks.items()
    ]


def stop_after(calls: int | None) -> Callable[..., None] | None:
    """A callback that stops a fit at this call; unlike a time limit, at the same place every time."""
    if calls is None:
        return None
    left = calls

    def callback(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Stop

    return callback
