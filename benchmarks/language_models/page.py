"""The tables of docs/language_models.md that were measured on a GPU, from the committed rows.

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

PAGE = ROOT / "docs" / "language_models.md"
STEPS, STUDY = "learning-step-cuda", "quantise-cuda"
DTYPES = ("float32", "bfloat16")
SETTINGS = ("W4A4", "W2")  # of the study's table
BASELINES = ("Hadamard", "random Hadamard", "Hadamard, ratios learned")  # the best is what learning must beat
SAME = 1e-5  # between the losses of a model that one run kept in a file and another read
RECOVERED = 0.5  # of the loss that the best of them leaves, at least


def report() -> None:
    """Both tables."""
    replace_between(PAGE, f"<!-- {STEPS} -->", f"<!-- end {STEPS} -->", learning_steps(read_rows(STEPS)))
    study = json.loads((RESULTS / f"{STUDY}.json").read_text())
    replace_between(PAGE, f"<!-- {STUDY} -->", f"<!-- end {STUDY} -->", quantised(study))


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


def quantised(study: dict[str, Any]) -> Iterator[str]:
    """The study's rows; whether learning recovers what it should."""
    rows = [r | {"other": _other(study, r)} for r in study["rows"] if r["setting"] in SETTINGS]
    left = {s: _left([r for r in rows if r["setting"] == s]) for s in SETTINGS}
    best = {s: min((r["loss"] for r in rows if r["setting"] == s), default=0.0) for s in SETTINGS}
    yield from (
        "",
        "| | " + " | ".join(SETTINGS) + " | steps | learned numbers | µs per token |",
        "|---" * (4 + len(SETTINGS)) + "|",
    )
    for base, steps in dict.fromkeys((_base(r), r.get("steps", 0)) for r in rows):
        mine = {r["setting"]: r for r in rows if (_base(r), r.get("steps", 0)) == (base, steps)}
        cells = [_loss(mine[s], left[s], best[s]) if s in mine else "" for s in SETTINGS]
        numbers, extra = next((r["parameters"], r["extra"]) for r in mine.values())
        yield (
            f"| {base} | "
            + " | ".join([*cells, str(steps or ""), f"{numbers:,}" if numbers else "", f"{extra:.2f}"])
            + " |"
        )
    yield ""
    if others := sorted({r["other"] for r in rows if r["other"]}):
        losses = ", ".join(f"{loss:.3f}" for loss in others)
        yield from (
            f"† Of an earlier run of the same configuration, with a model that was trained anew: {losses} nats per "
            f"byte, where this one has {study['loss']:.3f}.",
            "",
        )
    for s in SETTINGS:
        yield from (_recovery(s, [r for r in rows if r["setting"] == s], left[s]), "")
    spread = {s: found["mean"] / found["deviation"] for s, found in study["spread"].items() if s in SETTINGS}
    if spread:
        times = " and ".join(f"{times:.0f} times its spread over seeds at {s}" for s, times in spread.items())
        yield from (f"What random Hadamard matrices leave is {times}.", "")


def _left(rows: list[dict[str, Any]]) -> float:
    """The loss that the best baseline leaves, of this run's model if it has one."""
    mine = [r for r in rows if _base(r) in BASELINES]
    return min((r["loss"] for r in [r for r in mine if not r["other"]] or mine), default=float("nan"))


def _loss(row: dict[str, Any], left: float, best: float) -> str:
    """With the share that is recovered, where a method is more than a baseline; none where this is of another model."""
    digits = 4 if row["setting"] == "W4A4" else 3
    cell = f"{row['loss']:.{digits}f}"
    if _base(row) not in (*BASELINES, "round to nearest") and not row["other"]:
        cell += f" ({100 * (1 - row['loss'] / left):.0f} %)".replace("-", "−")
    return (f"**{cell}**" if row["loss"] == best else cell) + (" †" if row["other"] else "")


def _other(study: dict[str, Any], row: dict[str, Any]) -> float | None:
    """The loss of the model that a row is of, if that is not this run's."""
    run = row.get("run", 0)
    loss = float(study["earlier"][run - 1]["loss"]) if run else float(study["loss"])
    return None if abs(loss - study["loss"]) < SAME else loss


def _base(row: dict[str, Any]) -> str:
    """The method, without the number of steps that its title has in a later pass."""
    return str(row["method"]).removesuffix(f", {row.get('steps', 0)} steps")


def _recovery(setting: str, rows: list[dict[str, Any]], left: float) -> str:
    """The best learned rotation, and the best of all."""
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
    verdict = "met" if share.met else "missed"
    return (
        f'At {setting} the best learned rotations are "{best["method"]}". They recover {100 * share.value:.0f} % of '
        f"the {left:.4f} that the best Hadamard row leaves (asked ≥ {100 * RECOVERED:.0f} %: {verdict})."
    )


if __name__ == "__main__":
    report()
