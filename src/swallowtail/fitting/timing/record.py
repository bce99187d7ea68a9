"""The record of measured times: where it lies, how it is written, what it must hold.

One JSON file has a table per device and dtype. A table has a series per form; a series has points (amount, seconds)
for each of several n:

    {"format": 1, "tables": {"cpu float32": {"vectors": 256, "made": "2026-11-16", "hardware": "…",
     "series": {"pairs": {"64": [[1.0, 3.1e-05], …], "256": …}, …}}}}

Amounts: rotations per coordinate for "pairs", "grouped" and "butterfly"; rank for "plain", a diagonal and rank-one
terms, and for "hybrid", two rotations and rank-one terms; entries per row for "sparse"; nothing (0) for "dense".
"""

from __future__ import annotations

import json
import math
import os
import sys
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from swallowtail import atomic
from swallowtail.errors import ArgumentError

FORMAT = 1
SHIPPED = Path(__file__).with_name("shipped.json")

Points = list[tuple[float, float]]  # (amount, seconds), rising amounts
Table = dict[str, Any]  # "vectors", "made", "hardware", and "series": name → n → Points


def calibration_file() -> Path | None:
    """Where `calibrate` keeps its record: in the user's cache folder; None for a user who has none."""
    windows = sys.platform == "win32"
    folder = os.environ.get("LOCALAPPDATA" if windows else "XDG_CACHE_HOME")
    if not folder:
        try:
            folder = str(Path.home() / ("AppData/Local" if windows else ".cache"))
        except RuntimeError:  # a user without an entry and without HOME, as containers have them
            return None
    return Path(folder) / "swallowtail" / "times.json"


def read_tables(path: Path | None) -> dict[str, Table]:
    """The tables of a record, checked; none if there is no such file, or none that this user may read.

    A damaged or newer record is an `ArgumentError` that says how to get rid of it.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    try:
        return dict(_parsed(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ArgumentError(
            str(path),
            f"a record of times of format {FORMAT}",
            f"something else ({type(error).__name__}: {error})",
            "delete it, or calibrate again with `swallowtail warmup --calibrate`",
        ) from error


def write_tables(path: Path, tables: dict[str, Table]) -> None:
    """Write a record; at every moment the file is the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = json.dumps({"format": FORMAT, "tables": tables}, indent=1) + "\n"
    with atomic.replacing(path) as file:
        file.write(contents.encode())


@lru_cache(maxsize=4)  # every fit reads the same two
def _parsed(text: str) -> dict[str, Table]:
    found = json.loads(text)
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}")
    return {name: _table(table) for name, table in found["tables"].items()}


def _table(table: Any) -> Table:
    series = {
        str(name): {int(n): _points(points) for n, points in by_n.items()}
        for name, by_n in table["series"].items()
        if by_n
    }
    if not {"pairs", "plain", "hybrid", "dense"} <= set(series):
        raise ValueError("no series of pairs, of rank-one terms, or of dense matrices")
    made, hardware = (str(table[key])[:100] for key in ("made", "hardware"))
    return {"vectors": int(table["vectors"]), "made": made, "hardware": hardware, "series": series}


def _points(points: Any) -> Points:
    found = sorted((float(amount), float(seconds)) for amount, seconds in points)
    if not found or any(not (math.isfinite(a) and math.isfinite(s)) or a < 0 or s <= 0 for a, s in found):
        raise ValueError("a point that is no amount and positive time")
    # More takes no less time: a measurement may say so.
    rising = accumulate((seconds for _, seconds in found), max)
    return [(amount, seconds) for (amount, _), seconds in zip(found, rising, strict=True)]
