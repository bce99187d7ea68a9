"""Tables of the quantisation study, from the files that `examples/quantise.py` writes; `page` puts them in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.common.bars import Bar

Row = dict[str, Any]
Columns = dict[str, list[Row]]  # rows of one setting and one model, by what the column is called

BASELINES = ("Hadamard", "random Hadamard", "Hadamard, ratios learned")  # the best is what learning must beat
SAME = 1e-5  # between the losses of a model that one run kept in a file and another read
RECOVERED = 0.5  # of the loss that the best of them leaves, at least
ASKED = ("W4A4", "W2")  # the settings at which that was asked for
SPREADS = 3.0  # what Hadamard leaves is worth recovering if it exceeds its spread over seeds so many times


def rows_of(study: dict[str, Any], setting: str) -> list[Row]:
    """Of one setting, each with the loss of its model as ``other`` where that is not this run's."""
    return [r | {"other": _other(study, r)} for r in study["rows"] if r["setting"] == setting]


def table(columns: Columns, costs: bool = True, steps: bool = True) -> Iterator[str]:
    """A row per method: the loss it leaves in each column, and what it costs if wished."""
    left = {title: _left(rows) for title, rows in columns.items()}
    best = {title: min(r["loss"] for r in rows) for title, rows in columns.items()}
    heads = [*columns, *(["steps"] if steps else []), "learned numbers"]
    heads += ["seconds", "µs per token"] if costs else []
    yield from ("", f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|")
    methods = dict.fromkeys((_base(r), r.get("steps", 0)) for rows in columns.values() for r in rows)
    for method, count in sorted(methods, key=lambda found: found[0].endswith("compensated")):
        mine = {
            title: r
            for title, rows in columns.items()
            for r in rows
            if (_base(r), r.get("steps", 0)) == (method, count)
        }
        cells = [_loss(mine[t], left[t], best[t]) if t in mine else "" for t in columns]
        cells += [str(count or "")] if steps else []
        numbers = next(r["parameters"] for r in mine.values())
        cells.append(f"{numbers:,}" if numbers else "")
        cells += [_range(mine), f"{min(r['extra'] for r in mine.values()):.2f}"] if costs else []
        yield f"| {method} | {' | '.join(cells)} |"
    yield ""


def others(study: dict[str, Any], columns: Columns) -> Iterator[str]:
    """What the daggers of the table stand for, if it has any."""
    if found := sorted({r["other"] for rows in columns.values() for r in rows if r["other"]}):
        losses = ", ".join(f"{loss:.3f}" for loss in found)
        yield from (
            f"† Of an earlier run of the same configuration, with a model that was trained anew: {losses} nats per "
            f"byte, where this one has {study['loss']:.3f}.",
            "",
        )


def spreads(study: dict[str, Any], settings: tuple[str, ...], start: str = "What") -> Iterator[str]:
    """Whether what Hadamard matrices leave is more than chance, by the signs of random ones."""
    found = {s: each for run in (*study.get("earlier", []), study) for s, each in run["spread"].items()}
    found = {s: found[s] for s in settings if s in found}
    if not found:
        return
    times = {s: each["mean"] / each["deviation"] for s, each in found.items()}
    seeds = next(iter(found.values()))["seeds"]
    said = ", ".join(
        f"{_digits(found[s]['mean'])} ± {_digits(found[s]['deviation'])} at {s} ({times[s]:.0f} times)"
        for s in found
    )
    small = [s for s in found if not times[s] > SPREADS]
    verdict = (
        f"That is more than {SPREADS:.0f} times the spread everywhere."
        if not small
        else f"Not more than {SPREADS:.0f} times at {' and '.join(small)}: those rows are no comparison."
    )
    yield from (
        f"{start} random Hadamard matrices leave, and its spread over {seeds} seeds of their signs: {said}. {verdict}",
        "",
    )


def recovery(setting: str, rows: list[Row]) -> str:
    """The best learned rotations, beside what was asked for."""
    left = _left(rows)
    # A dense map has 20 times the numbers and is no rotation, and compensation goes with any method.
    ours = [
        r
        for r in rows
        if r["parameters"]
        and "dense" not in r["method"]
        and "compensated" not in r["method"]
        and _base(r) not in BASELINES
    ]
    ours = [r for r in ours if not r["other"]] or ours  # of the model that Hadamard's row is of
    if not ours:
        return f"At {setting} no learned rotations were tried."
    best = min(ours, key=lambda r: r["loss"])
    share = Bar(setting, 1 - best["loss"] / left, "≥", RECOVERED)
    verdict = f" (asked ≥ {100 * RECOVERED:.0f} %: {'met' if share.met else 'missed'})"
    return (
        f'At {setting} the best learned rotations are "{_base(best)}". They recover {100 * share.value:.0f} % of '
        f"the {left:.4f} that the best Hadamard row leaves{verdict if setting in ASKED else ''}."
    )


def _left(rows: list[Row]) -> float:
    """The loss that the best baseline leaves, of this run's model if it has one."""
    mine = [r for r in rows if _base(r) in BASELINES]
    return min((r["loss"] for r in [r for r in mine if not r["other"]] or mine), default=math.nan)


def _loss(row: Row, left: float, best: float) -> str:
    """With the share that is recovered, where a method is more than a baseline; none where this is of another model."""
    cell = f"{row['loss']:.{max(3, 1 - math.floor(math.log10(best)))}f}"
    if _base(row) not in (*BASELINES, "round to nearest") and not row["other"]:
        cell += f" ({100 * (1 - row['loss'] / left):.0f} %)".replace("-", "−")
    return (f"**{cell}**" if row["loss"] == best else cell) + (" †" if row["other"] else "")


def _range(rows: dict[str, Row]) -> str:
    """Seconds to quantise, over the settings."""
    low, high = (_digits(pick(r["seconds"] for r in rows.values())) for pick in (min, max))
    return low if low == high else f"{low}–{high}"


def _digits(x: float) -> str:
    """Two of them."""
    return f"{x:.{max(0, 1 - math.floor(math.log10(x)))}f}"


def _other(study: dict[str, Any], row: Row) -> float | None:
    """The loss of the model that a row is of, if that is not this run's."""
    run = row.get("run", 0)
    loss = float(study["earlier"][run - 1]["loss"]) if run else float(study["loss"])
    return None if abs(loss - study["loss"]) < SAME else loss


def _base(row: Row) -> str:
    """The method, without the number of steps that its title has in a later pass."""
    return str(row["method"]).removesuffix(f", {row.get('steps', 0)} steps")
