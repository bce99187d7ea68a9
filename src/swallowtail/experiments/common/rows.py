"""Rows, the one form in which every experiment keeps what it measured; they survive a kill."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from swallowtail import atomic
from swallowtail.errors import ArgumentError
from swallowtail.progress import Bar

Row = dict[str, Any]  # str, int and float values; None and missing keys are empty cells
TASK = "task"


def collect(
    tasks: Mapping[str, Callable[[], list[Row]]], path: Path | None, label: str, progress: bool = True
) -> list[Row]:
    """Run the tasks in order, keeping the rows of each as soon as it is done.

    Args:
        tasks: name → function that returns its rows. The name becomes the first column, "task".
        path: the CSV. Tasks that are in it already are not run again, so a killed run continues.
        label: of the progress bar.
        progress: whether to show it.

    Returns:
        The rows of all tasks, in the order of the tasks; the same whether just run or read back.
    """
    rows = read_rows(path) if path is not None and path.exists() else []
    done = {row[TASK] for row in rows}
    unknown = sorted(done - set(tasks))
    if unknown:
        got = f"the tasks {', '.join(unknown[:3])} of another"
        hint = "choose another folder or delete the file"
        raise ArgumentError(str(path), "rows of this run", got, hint)
    left = {name: task for name, task in tasks.items() if name not in done}
    bar = Bar(
        left.items(), desc=label, initial=len(done), total=len(tasks), disable=not progress, unit="task"
    )
    for name, task in bar:
        bar.set_postfix_str(name)
        rows += [_as_read({TASK: name, **row}) for row in task()]
        if path is not None:
            write_rows(path, rows)
    place = {name: i for i, name in enumerate(tasks)}
    return sorted(rows, key=lambda row: place[row[TASK]])


def read_rows(path: Path) -> list[Row]:
    """Rows with their numbers as int and float again; empty cells are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_typed(row) for row in csv.DictReader(file)]


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write all rows or, if killed meanwhile, leave the old file as it was."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    with atomic.replacing(path) as file:
        file.write(text.getvalue().encode())


def _as_read(row: Row) -> Row:
    """The row as it would come back from the file: findings must not depend on the way it took."""
    return _typed({key: str(_plain(value)) for key, value in row.items()})


def _typed(row: Mapping[str, str]) -> Row:
    return {key: value if key == TASK else _parse(value) for key, value in row.items() if value != ""}


def _plain(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str | int | float):
        return value
    raise ArgumentError("row", "str, int or float values", type(value).__name__)


def _parse(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
