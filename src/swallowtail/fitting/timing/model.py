"""The model: seconds of a product as a function of n, wiring, rotations and rank, by interpolation in a table.

Between two amounts seconds are interpolated linearly, between two n by a power of n. Beyond the last amount they go on
with the slope before it, beyond the last n in proportion to n; smaller n than the first take as long as it. More never
takes less time. Rotations and rank-one terms run one after the other, so their times add: what the terms take is what
they add to two rotations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from swallowtail.fitting.timing.record import SHIPPED, Points, Table, calibration_file, read_tables

NOT_CALIBRATED = "not calibrated"


class TimeModel(NamedTuple):
    """Times on one device in one dtype."""

    device: str  # "cpu" or "cuda"
    vectors: int  # in a product; on a CPU, one thread
    # "not calibrated" for the table that comes with the package, or when and where it was measured.
    source: str
    series: dict[str, dict[int, Points]]  # see `record`

    @property
    def is_calibrated(self) -> bool:
        """Whether it was measured on this machine."""
        return self.source != NOT_CALIBRATED

    def seconds(self, n: int, kind: str, n_rotations: int, rank: int = 0) -> float:
        """Of a product with rotations, a diagonal and rank-one terms.

        Args:
            n: dimension.
            kind: of the wiring, "pairs", "grouped" or "butterfly"; any without rotations.
            n_rotations: K; 0 for a diagonal or c·I.
            rank: the number of terms.
        """
        if not n_rotations:
            return self.at("plain", n, rank)
        kind = kind if kind in self.series else "pairs"
        terms = self.at("hybrid", n, rank) - self.at("pairs", n, 2 / n) if rank else 0.0
        return self.at(kind, n, n_rotations / n) + max(terms, 0.0)

    def sparse(self, n: int, nnz: int) -> float | None:
        """Of a product with a sparse matrix of ``nnz`` entries; None where nothing was measured."""
        return self.at("sparse", n, nnz / n) if "sparse" in self.series else None

    def at(self, name: str, n: int, amount: float = 0.0) -> float:
        """Of a series, as `record` counts amounts."""
        by_n = self.series[name]
        sizes = sorted(by_n)
        left = max((size for size in sizes if size <= n), default=sizes[0])
        low = _along(by_n[left], amount)
        if left == sizes[-1]:
            return low * n / left
        right = sizes[sizes.index(left) + 1]
        part = math.log(max(n, left) / left) / math.log(right / left)
        return float(low ** (1 - part) * _along(by_n[right], amount) ** part)


def time_model(device: Any = "cpu", dtype: torch.dtype = torch.float32) -> TimeModel:
    """The model for a device and a dtype: calibrated if this machine was, or else from the table that is shipped."""
    kind = torch.device(device).type
    tables, shipped = read_tables(calibration_file()), read_tables(SHIPPED)
    for found, calibrated in ((tables, True), (shipped, False)):
        table = _closest(found, kind, dtype)
        if table is not None:
            source = f"calibrated {table['made']}" if calibrated else NOT_CALIBRATED
            return TimeModel(kind, table["vectors"], source, table["series"])
    return TimeModel("cpu", *time_model("cpu", dtype)[1:])  # a device without a table


def _closest(tables: dict[str, Table], device: str, dtype: torch.dtype) -> Table | None:
    """The table of the dtype, or of the one that is most like it."""
    name = str(dtype).removeprefix("torch.")
    half = ("bfloat16", "float16") if name in ("bfloat16", "float16") else ()
    for other in (name, *half, "float32", "float64"):
        if f"{device} {other}" in tables:
            return tables[f"{device} {other}"]
    return None


def _along(points: Points, amount: float) -> float:
    """Linear between points; before the first and beyond the last as between their neighbours, but never falling."""
    if len(points) == 1:
        return points[0][1]
    (a, s), (b, t) = next((pair for pair in pairwise(points) if amount <= pair[1][0]), tuple(points[-2:]))
    slope = max((t - s) / (b - a), 0.0)
    return max(s + slope * (amount - a), 0.1 * points[0][1])
