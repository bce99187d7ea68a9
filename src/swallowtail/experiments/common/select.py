"""Look things up in rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from swallowtail.experiments.common.rows import Row


def where(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have all that is wanted."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def values(rows: list[Row], column: str, **wanted: Any) -> list[float]:
    """A column's numbers in the rows that have all that is wanted."""
    return [float(row[column]) for row in where(rows, **wanted) if column in row]


def mean(rows: list[Row], column: str, **wanted: Any) -> float:
    """Of `values`; NaN if there are none."""
    found = values(rows, column, **wanted)
    return float(np.mean(found)) if found else float("nan")


def median(rows: list[Row], column: str, **wanted: Any) -> float:
    """Of `values`; NaN if there are none."""
    found = values(rows, column, **wanted)
    return float(np.median(found)) if found else float("nan")


def kinds(rows: list[Row], column: str, **wanted: Any) -> list[Any]:
    """The different entries of a column, in the order they come."""
    return list(dict.fromkeys(row[column] for row in where(rows, **wanted) if column in row))
