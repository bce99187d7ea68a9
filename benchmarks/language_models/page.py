"""The tables of docs/language_models.md about quantising, from the committed rows.

python -m benchmarks.language_models.page
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.common.bars import Bar
from benchmarks.common.pages import ROOT, replace_between
from benchmarks.common.rows import RESULTS, Row, read_rows
from benchmarks.language_models.learning_step import BAR, BAR_AT
from benchmarks.language_models.study_page import others, recovery, rows_of, spreads, table

PAGE = ROOT / "docs" / "language_models.md"
STEPS = "learning-step-cuda"
TUNED = "finetune-cpu"
HELD_OUT, EASY, SHORT, LARGE = "quantise-cpu-300", "quantise-cpu-300-w3-w4a8", "quantise-cpu", "quantise-cuda"
DTYPES = ("float32", "bfloat16")
LANGUAGES = ("Python", "English")


def report() -> None:
    """All of them."""
    _put(STEPS, learning_steps(read_rows(STEPS)))
    _put(HELD_OUT, held_out({text: _study(f"{HELD_OUT}-{text.lower()}") for text in LANGUAGES}))
    _put(EASY, quantised(_study(EASY), ("W3", "W4A8"), steps=False))
    _put(SHORT, quantised(_study(SHORT), ("W4A4", "W2", "W4"), steps=False, verdict=False))
    _put(LARGE, quantised(_study(LARGE), ("W4A4", "W2")))
    _put(TUNED, finetuned(_study(TUNED)))


def _put(name: str, lines: Iterator[str]) -> None:
    replace_between(PAGE, f"<!-- {name} -->", f"<!-- end {name} -->", lines)


def _study(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def learning_steps(rows: list[Row]) -> Iterator[str]:
    """All rounds beside a loop: launched alone, and recorded as a graph."""
    cases = dict[tuple[int, int], dict[str, Row]]()
    for r in rows:
        cases.setdefault((int(r["n"]), int(r["rows"])), {})[r["dtype"]] = r
    recorded = any(r.get("ratio_graph") for r in rows)
    ways = [("", "launched"), *([("graph", "recorded")] if recorded else [])]
    yield from (
        "",
        "| n | rows | "
        + " | ".join(f"{dtype}, {said}: all rounds, loop" for dtype in DTYPES for _, said in ways)
        + " |",
        "|---" * (2 + len(DTYPES) * len(ways)) + "|",
    )
    for (n, count), found in cases.items():
        cells = [_step(found.get(dtype, {}), how) for dtype in DTYPES for how, _ in ways]
        yield f"| {n} | {count} | " + " | ".join(cells) + " |"
    yield ""
    if recorded:
        yield from (
            '"Launched" is a step alone, with the host\'s work and the wait for the device. "Recorded" is a CUDA graph '
            "of the whole step, replayed: what the device takes.",
            "",
        )
    yield from (_verdict(rows, recorded), "")


def _step(row: Row, how: str) -> str:
    """Both times and their ratio."""
    names = (
        ("grouped_ms", "loop_ms", "ratio")
        if not how
        else (f"grouped_{how}_ms", f"loop_{how}_ms", f"ratio_{how}")
    )
    if not all(row.get(name) for name in names):
        return ""
    grouped, loop, ratio = (float(row[name]) for name in names)
    return f"{_two_digits(grouped)} ms, {_two_digits(loop)} ms ({ratio:.1f} ×)"


def _two_digits(x: float) -> str:
    return f"{x:#.2g}".rstrip(".")


def _verdict(rows: list[Row], recorded: bool) -> str:
    """Whether the goal was reached."""
    mine = [r for r in rows if int(r["n"]) == BAR_AT and r["dtype"] == "bfloat16"]
    said = []
    for key, how in (
        ("ratio", "launched"),
        ("ratio_in_a_row", "launched in a row"),
        ("ratio_graph", "recorded"),
    ):
        ratios = [float(r[key]) for r in mine if r.get(key)]
        if ratios:
            met = "met" if all(Bar(how, ratio, "≥", BAR).met for ratio in ratios) else "missed"
            said.append(f"{how} {' and '.join(f'{ratio:.1f}' for ratio in ratios)} ({met})")
    why = (
        ""
        if recorded
        else " A single round is a tensor-core product too, and the host takes part of the time."
    )
    return f"In bfloat16 at n = {BAR_AT} the goal was {BAR:g} times: {'; '.join(said)}.{why}"


def quantised(
    study: dict[str, Any], settings: tuple[str, ...], steps: bool = True, verdict: bool = True
) -> Iterator[str]:
    """The study's rows; whether learning recovers what it should."""
    columns = {s: rows_of(study, s) for s in settings}
    yield from table(columns, steps=steps)
    yield from others(study, columns)
    for s in settings if verdict else ():
        yield from (recovery(s, columns[s]), "")
    yield from spreads(study, settings)


def held_out(studies: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The two models that no method was made on, side by side."""
    settings = ("W4A4", "W2")
    columns = {f"{s}, {text}": rows_of(study, s) for s in settings for text, study in studies.items()}
    yield from table(columns, costs=False, steps=False)
    for text, study in studies.items():
        yield from spreads(study, settings, f"{text}: what")


def finetuned(study: dict[str, Any]) -> Iterator[str]:
    """Every method after as many steps, and after as much time; the best of few numbers in bold."""
    whole, *_ = rows = study["same_steps"]
    timed = {row["method"]: row for row in study["same_time"]}
    best = [
        min(r["loss"] for r in found if r["method"] != whole["method"]) for found in (rows, timed.values())
    ]
    steps = whole["steps"]
    yield from (
        "",
        f"| | learned numbers | ms per step | loss after {steps} steps | in LoRA's time (steps) | kept for backward |",
        "|---" * 6 + "|",
    )
    for row in sorted(rows, key=lambda r: (r is not whole, r["loss"])):
        other = timed[row["method"]]
        losses = [
            f"**{r['loss']:.3f}**" if r["loss"] == b else f"{r['loss']:.3f}"
            for r, b in zip((row, other), best, strict=True)
        ]
        yield (
            f"| {row['method']} | {row['parameters']:,} | {row['step']:.0f} | {losses[0]} | {losses[1]} "
            f"({other['steps']}) | {row['kept']:.0f} MB |"
        )
    yield from ("", f"Before, the loss on the new text is {study['before']:.3f} nats per byte.", "")


if __name__ == "__main__":
    report()
