"""Rows of results: CSV files in benchmarks/results, each row with the machine, the versions and the command."""

from __future__ import annotations

import csv
import datetime
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "results"
FACTS = ("hardware", "versions", "date", "command")  # the columns that `write_rows` adds
Row = dict[str, Any]


def machine(device: str = "cpu") -> dict[str, str]:
    """Hardware and versions, for every row."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = f"{models[0] if models else platform.processor()}, {len(models) or '?'} cores"
    versions = " ".join(f"{package} {_version(package)}" for package in ("torch", "numba", "triton", "numpy"))
    return {"hardware": name, "versions": f"python {platform.python_version()} {versions}"}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "-"


def write_rows(name: str, rows: list[Row], command: str, device: str = "cpu") -> Path:
    """Write ``results/<name>.csv``, each row with the machine, the versions, the day and the command.

    Rows of an earlier run, as `read_rows` gives them, keep their own.
    """
    today = datetime.date.today().isoformat()
    facts = dict(zip(FACTS, (*machine(device).values(), today, command), strict=True))
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in facts)) + list(facts)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**facts, **{k: _short(v) for k, v in row.items()}})
    return path


def read_rows(name: str) -> list[Row]:
    """The committed rows, all values as text; none if the file is not there."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
