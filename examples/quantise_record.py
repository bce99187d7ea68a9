"""What `quantise.py` writes: rows, the configuration they belong to, and rows of earlier runs of the same one."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class Row:
    """One method at one setting."""

    setting: str
    method: str
    loss: float  # above that of the unquantised model, in nats per byte
    seconds: float  # to quantise
    parameters: int  # that are learned
    extra: float  # microseconds per token that the transforms take
    steps: int = 0  # of learning
    recorded: bool = False  # whether a step was a CUDA graph
    run: int = 0  # 0: this one; otherwise the number of an earlier run, from 1

    @property
    def base(self) -> str:
        """The method, without the number of steps that its title has in a later pass."""
        return self.method.removesuffix(f", {self.steps} steps")

    @property
    def key(self) -> tuple[str, str, int]:
        """What a row of another run has to share in order to be replaced."""
        return self.setting, self.base, self.steps


class Record:
    """A file that is written after every row.

    Args:
        path: where it goes.
        facts: of this run: the device, the loss of the model, how it was trained.
        config: all that rows must have in common to stand in one table: the model, its training, its text.
        earlier: a file of such runs. Its rows are kept where this run has none, if the configuration is the same. The
            model was trained anew for each run, so their losses are above those of another model of the same kind.
    """

    def __init__(
        self, path: Path, facts: dict[str, Any], config: dict[str, Any], earlier: Path | None = None
    ) -> None:
        self.path, self.rows = path, dict[tuple[str, str, int], Row]()
        self._kept, runs = list[Row](), list[dict[str, Any]]()
        if earlier is not None:
            self._kept, runs = _earlier(earlier, config)
        command = shlex.join(["python", *sys.argv])
        self.content = {"command": command, **facts, "config": config, "spread": {}, "earlier": runs}

    def add(self, row: Row) -> None:
        """And write."""
        self.rows[row.key] = row
        self.write()

    def all_rows(self) -> list[dict[str, Any]]:
        """Of this run, then those that are kept."""
        kept = [row for row in self._kept if row.key not in self.rows]
        return [dataclasses.asdict(row) for row in (*self.rows.values(), *kept)]

    def write(self) -> None:
        """Through a second file: a run that is stopped leaves a whole one."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({**self.content, "rows": self.all_rows()}, indent=1) + "\n")
        fresh.replace(self.path)


def _earlier(path: Path, config: dict[str, Any]) -> tuple[list[Row], list[dict[str, Any]]]:
    """Rows and runs of a file, numbered from 1; none if its configuration is another."""
    found = json.loads(path.read_text())
    same = json.loads(json.dumps(config))
    if found.get("config") != same:
        print(f"earlier rows are left out: expected {same}, got {found.get('config')}", flush=True)
        return [], []
    last = {key: value for key, value in found.items() if key not in ("config", "rows", "earlier")}
    rows = [Row(**row) for row in found["rows"]]
    return [dataclasses.replace(row, run=row.run + 1) for row in rows], [last, *found.get("earlier", [])]
