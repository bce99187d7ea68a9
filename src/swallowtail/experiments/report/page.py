"""What the report says, before it is laid out: one section per experiment, made from its rows."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import matplotlib

from swallowtail.experiments import EXPERIMENTS
from swallowtail.experiments.common import plots
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.rows import read_rows
from swallowtail.experiments.report.record import Record, read_record


class Section(NamedTuple):
    """What the report says about one experiment."""

    name: str
    title: str
    about: str  # what the paper says and what we do: the module's docstring
    text: str = ""  # prose computed from the rows
    better: tuple[str, ...] = ()  # for the summary: what we do better, and where a plain rival wins
    findings: tuple[Finding, ...] = ()
    image: bytes = b""  # PNG
    run: str = ""  # seconds, rows, date
    failure: str = ""


class Page(NamedTuple):
    """The whole report."""

    mode: str  # "quick" or "full"
    sections: list[Section]
    facts: dict[str, str]  # machine, versions, command, date
    absent: list[str]  # experiments without rows


def page_of(output: Path, draw: bool = True) -> Page:
    """What the rows in a folder say; without the figures if ``draw`` is False."""
    record = read_record(output, None)
    sections, absent = [], []
    for name in EXPERIMENTS:
        path, entry = output / f"{name}.csv", record["experiments"].get(name, {})
        if path.exists() or "failure" in entry:
            sections.append(_section(name, path, entry, draw))
        else:
            absent.append(name)
    return Page(record["mode"], sections, _facts(record), absent)


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
            with matplotlib.rc_context(plots.STYLE):
                image = plots.picture(module.plot(rows))
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
