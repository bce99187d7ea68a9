"""The record of a run, kept beside its rows: mode, settings, machine, versions and times."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import swallowtail
from swallowtail import atomic
from swallowtail.errors import ArgumentError

RECORD = "run.json"
PACKAGES = ("torch", "numpy", "scipy", "numba", "scikit-learn", "matplotlib")
Record = dict[str, Any]


def read_record(output: Path, mode: str | None) -> Record:
    """The record in a folder; a new one for ``mode`` if there is none yet, an error if ``mode`` is None."""
    path = output / RECORD
    if not path.exists():
        if mode is None:
            raise ArgumentError("redraw", f"{RECORD} in {output}", "none", "run the experiments first")
        return {"mode": mode, "experiments": {}}
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        found = record["mode"]
        record["experiments"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(str(path), "the record of a run", repr(error), "try another folder") from error
    if mode is not None and found != mode:
        expected = f"an empty folder or one with rows of --{mode}"
        raise ArgumentError(str(output), expected, f"rows of --{found}", "try another folder with -o")
    return record


def write_record(output: Path, record: Record) -> None:
    """Put the record beside the rows."""
    write_file(output / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def write_file(path: Path, data: bytes) -> None:
    """Write all of it or, if killed meanwhile, leave the old file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.replacing(path) as file:
        file.write(data)


def where_and_when(command: str) -> Record:
    """The command, this machine, the versions and the date."""
    versions = [f"swallowtail {swallowtail.__version__}", f"python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return {
        "command": command,
        "machine": _machine(),
        "versions": ", ".join(versions),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"
