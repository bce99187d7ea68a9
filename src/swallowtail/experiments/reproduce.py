"""Run the experiments that were asked for, keep what they give, and write the report."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import matplotlib

import swallowtail
from swallowtail.experiments import EXPERIMENTS
from swallowtail.experiments.common import draw as _draw
from swallowtail.experiments.common.run import read_rows
from swallowtail.experiments.report import Page, Section, render, render_findings

MODES = ("quick", "full")
RECORD = "run.json"  # beside the rows: mode, settings, machine and times
PACKAGES = ("torch", "numpy", "scipy", "numba", "scikit-learn", "matplotlib")
Record = dict[str, Any]


def reproduce(
    output: Path,
    names: Sequence[str] = (),
    mode: str = "quick",
    mnist: Path | None = None,
    redraw: bool = False,
    command: str = "",
    progress: bool = True,
) -> dict[str, str]:
    """Run experiments and write ``index.html``, a CSV and a PNG for each, the table and the run's record.

    Args:
        output: the folder. Rows of the same mode that it holds already are kept and not run again.
        names: which experiments, of `EXPERIMENTS`; all by default.
        mode: "quick" or "full".
        mnist: where MNIST lies, see `datasets.mnist_images`.
        redraw: run nothing, draw again what the folder holds.
        command: how this was asked for, for the report.
        progress: show progress bars.

    Returns:
        The experiments that failed, with the reason. The others are in the report all the same.

    Raises:
        ValueError: a name that is none, or a folder with rows of another mode or other settings.
    """
    names = _known(names)
    record = _read_record(output, None if redraw else mode)
    if redraw:
        names = [name for name in names if (output / f"{name}.csv").exists()]
        if not names:
            raise ValueError(f"--redraw: expected rows in {output}, got none; leave out --redraw to run")
    failures = {}
    for name in names:
        try:
            if not redraw:
                _run(name, record, output, mnist, command, progress)
        except Exception as error:  # whatever it is, the other experiments are worth having
            failures[name] = f"{type(error).__name__}: {error}"
            record["experiments"].setdefault(name, {})["failure"] = failures[name]
            _write_record(output, record)
    page = page_of(output)
    for section in page.sections:
        if section.image:
            _write(output / f"{section.name}.png", section.image)
        if section.failure and section.name in names:
            failures.setdefault(section.name, section.failure)
    _write(output / "index.html", render(page).encode())
    _write(output / "findings.md", render_findings(page).encode())
    return failures


def page_of(output: Path, draw: bool = True) -> Page:
    """What the rows in a folder say; without the figures if ``draw`` is False."""
    record = _read_record(output, None)
    sections, absent = [], []
    for name in EXPERIMENTS:
        path, entry = output / f"{name}.csv", record["experiments"].get(name, {})
        if path.exists() or "failure" in entry:
            sections.append(_section(name, path, entry, draw))
        else:
            absent.append(name)
    return Page(record["mode"], sections, _facts(record), absent)


def _known(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"expected experiments of {', '.join(EXPERIMENTS)}; got {', '.join(unknown)}")
    return [name for name in EXPERIMENTS if not names or name in names]


def _run(name: str, record: Record, output: Path, mnist: Path | None, command: str, progress: bool) -> None:
    module = import_module(EXPERIMENTS[name])
    config = getattr(module, record["mode"].upper())
    path, entry = output / f"{name}.csv", record["experiments"].setdefault(name, {})
    if path.exists() and entry.get("config", repr(config)) != repr(config):
        raise ValueError(
            f"{path}: expected rows with the settings {config}, got rows with {entry['config']}; "
            "choose another folder or delete the file"
        )
    entry |= {"config": repr(config), "finished": False}
    entry.pop("failure", None)
    _write_record(output, record)
    if mnist is not None and "mnist" in {field.name for field in fields(config)}:
        config = replace(config, mnist=str(mnist))  # a place on this machine: not part of the settings
    begin, before = time.perf_counter(), _content(path)
    try:
        module.run(config, path, progress)
        entry["finished"] = True
    finally:
        if _content(path) != before:  # otherwise all was there: when and where stay as they were
            entry["seconds"] = round(entry.get("seconds", 0.0) + time.perf_counter() - begin, 1)
            entry |= _where_and_when(command)
        _write_record(output, record)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _section(name: str, path: Path, entry: Record, draw: bool) -> Section:
    """What the rows say; if they cannot be drawn, the reason."""
    title, about, failure = name, "", entry.get("failure", "")
    try:
        module = import_module(EXPERIMENTS[name])
        title, about = module.TITLE, module.__doc__ or ""
        if not path.exists():
            return Section(name, title, about, failure=failure)
        rows = read_rows(path)
        run = f"{len(rows)} rows in `{name}.csv`, figure in `{name}.png`"
        run += f"; {entry['seconds']:.0f} s, {entry['date']}" if "seconds" in entry else ""
        run += "" if entry.get("finished", True) else "; not finished: the same command continues it"
        image = b""
        if draw:
            with matplotlib.rc_context(_draw.STYLE):
                image = _draw.picture(module.plot(rows))
        return Section(
            name,
            title,
            about,
            text=module.text(rows) if hasattr(module, "text") else "",
            better=tuple(module.better(rows)) if hasattr(module, "better") else (),
            findings=tuple(module.findings(rows)),
            image=image,
            run=run + ".",
            failure=failure,
        )
    except Exception as error:  # an experiment that cannot be drawn must not lose the others
        return Section(name, title, about, failure=failure or f"{type(error).__name__}: {error}")


def _facts(record: Record) -> dict[str, str]:
    """What the report says about where it comes from; experiments may have been run in several goes."""
    entries = [entry for entry in record["experiments"].values() if "date" in entry]
    facts = {}
    for key in ("command", "machine", "versions", "date"):
        facts[key] = "; ".join(dict.fromkeys(str(entry[key]) for entry in entries if entry.get(key)))
    if facts["command"]:
        facts["command"] = "; ".join(f"`{line}`" for line in facts["command"].split("; "))
    seconds = sum(entry.get("seconds", 0.0) for entry in entries)
    facts["time"] = f"{seconds:.0f} s in all" if seconds < 600 else f"{seconds / 60:.0f} minutes in all"
    facts["again"] = "Seeds are fixed: the same command gives the same table, but for times."
    return {key: value for key, value in facts.items() if value}


def _where_and_when(command: str) -> Record:
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


def _read_record(output: Path, mode: str | None) -> Record:
    path = output / RECORD
    if not path.exists():
        if mode is None:
            raise ValueError(f"--redraw: expected {RECORD} in {output}, got none; leave out --redraw to run")
        return {"mode": mode, "experiments": {}}
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        found = record["mode"]
        record["experiments"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: expected the record of a run, got {error!r}; delete the folder") from error
    if mode is not None and found != mode:
        raise ValueError(
            f"{output}: expected an empty folder or one with rows of --{mode}, got rows of --{found}; "
            "give another folder with -o"
        )
    return record


def _write_record(output: Path, record: Record) -> None:
    _write(output / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def _write(path: Path, data: bytes) -> None:
    """All of it, or the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
