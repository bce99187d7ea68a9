"""Run the experiments that were asked for, keep what they give, and write the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path

from swallowtail.errors import ArgumentError
from swallowtail.experiments import EXPERIMENTS
from swallowtail.experiments.report.html import render
from swallowtail.experiments.report.markdown import render_findings
from swallowtail.experiments.report.page import page_of
from swallowtail.experiments.report.record import (
    Record,
    read_record,
    where_and_when,
    write_file,
    write_record,
)


def reproduce(
    output: Path,
    names: Sequence[str] = (),
    mode: str = "quick",
    mnist: Path | None = None,
    redraw: bool = False,
    command: str = "",
    progress: str = "bars",
) -> dict[str, str]:
    """Run experiments and write ``index.html``, a CSV and a PNG for each, the table and the run's record.

    Args:
        output: the folder. Rows of the same mode that it holds already are kept and not run again.
        names: which experiments, of `EXPERIMENTS`; all by default.
        mode: "quick" or "full".
        mnist: where MNIST lies, see `datasets.mnist_images`.
        redraw: run nothing, draw again what the folder holds.
        command: how this was asked for, for the report.
        progress: "bars"; "lines", one per experiment, for a log; "" for neither.

    Returns:
        The experiments that failed, with the reason. The others are in the report all the same.

    Raises:
        ArgumentError: a name that is none, or a folder with rows of another mode or other settings.
    """
    names = _known(names)
    record = read_record(output, None if redraw else mode)
    if redraw:
        names = [name for name in names if (output / f"{name}.csv").exists()]
        if not names:
            raise ArgumentError("redraw", f"rows in {output}", "none", "run the experiments first")
    failures = {}
    for name in names:
        try:
            if not redraw:
                _run(name, record, output, mnist, command, progress)
        except Exception as error:  # whatever it is, the other experiments are worth having
            failures[name] = f"{type(error).__name__}: {error}"
            record["experiments"].setdefault(name, {})["failure"] = failures[name]
            write_record(output, record)
    page = page_of(output)
    for section in page.sections:
        if section.image:
            write_file(output / f"{section.name}.png", section.image)
        if section.failure and section.name in names:
            failures.setdefault(section.name, section.failure)
    write_file(output / "index.html", render(page).encode())
    write_file(output / "findings.md", render_findings(page).encode())
    return failures


def _known(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise ArgumentError("names", f"some of {', '.join(EXPERIMENTS)}", ", ".join(unknown))
    return [name for name in EXPERIMENTS if not names or name in names]


def _run(name: str, record: Record, output: Path, mnist: Path | None, command: str, progress: str) -> None:
    module = import_module(EXPERIMENTS[name])
    config = getattr(module, record["mode"].upper())
    path, entry = output / f"{name}.csv", record["experiments"].setdefault(name, {})
    if path.exists() and entry.get("config", repr(config)) != repr(config):
        expected, got = f"rows with the settings {config}", f"rows with {entry['config']}"
        raise ArgumentError(str(path), expected, got, "choose another folder or delete the file")
    entry |= {"config": repr(config), "finished": False}
    entry.pop("failure", None)
    write_record(output, record)
    if mnist is not None and "mnist" in {field.name for field in fields(config)}:
        config = replace(config, mnist=str(mnist))  # a place on this machine: not part of the settings
    begin, before = time.perf_counter(), _content(path)
    try:
        module.run(config, path, progress == "bars")
        entry["finished"] = True
        if progress == "lines":
            print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
    finally:
        if _content(path) != before:  # otherwise all was there: when and where stay as they were
            entry["seconds"] = round(entry.get("seconds", 0.0) + time.perf_counter() - begin, 1)
            entry |= where_and_when(command)
        write_record(output, record)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
