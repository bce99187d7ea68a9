"""How good a fit is and what it costs, as columns of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common.rows import Row
from swallowtail.fitting.result import count_floats
from swallowtail.metrics import error_angle, relative_error

PROBES = 2000  # x for an angle; a tenth of it from n = 1500 on
DENSE = 1500  # up to this n the relative error is exact


def quality(H: Any, B: Any, n: int, seed: int) -> Row:
    """Angle and relative error of B as an approximation of H."""
    few = n > DENSE
    angle = error_angle(H, B, PROBES // 10 if few else PROBES, seed, n=n)
    if not few:
        H, B = (M @ np.eye(n) if hasattr(M, "__matmul__") else M(np.eye(n)) for M in (H, B))
    return {"angle": angle, "relative_error": relative_error(H, B, 100, seed, n=n).value}


def cost(operator: Any) -> Row:
    """What a fit stores and what its product takes."""
    row = {"n_rotations": operator.rotation.n_rotations, "floats": count_floats(operator)}
    rank = {"rank": operator.rank} if hasattr(operator, "rank") else {}
    return row | {"multiply_adds": operator.multiply_adds} | rank
