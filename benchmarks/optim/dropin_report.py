"""The table of `benchmarks.optim.dropin`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.common.rows import Row, read_rows

PAIRS = {"Adam": "GivensAdam", "AdamW": "GivensAdam, decay 0.01"}


def dropin_table() -> Iterator[str]:
    """Losses side by side, and how often each method has the lower one."""
    rows = read_rows("optim-dropin")
    if not rows:
        return
    problems, rates, steps, seeds = (
        list(dict.fromkeys(row[key] for row in rows)) for key in ("problem", "rate", "step", "seed")
    )
    value = {kind: _medians(rows, kind) for kind in ("loss", "held_out")}

    def lower(kind: str, step: str) -> int:
        cells = [(p, r, step) for p in problems for r in rates]
        return sum(
            value[kind][*at, ours] < value[kind][*at, theirs]
            for at in cells
            for theirs, ours in PAIRS.items()
        )

    each = len(problems) * len(rates) * len(PAIRS)
    counts = ", ".join(f"in {lower('loss', step)} of {each} after {step} steps" for step in steps)
    held_out = f"{lower('held_out', steps[-1])} of {each}"
    yield from (
        "**In the place of torch's Adam and AdamW** (`python -m benchmarks.optim.dropin`): problems that nobody tuned "
        "on, each method's own defaults, a constant rate. Training losses after "
        f"{', '.join(steps[:-1])} and {steps[-1]} minibatches of 64, medians over {len(seeds)} seeds. AdamW and "
        f"GivensAdam beside it decay weights by 0.01. GivensAdam's loss is the lower one {counts}; on held-out "
        f"data in {held_out} after {steps[-1]}.", "",
        "| | rate | " + " | ".join(name for pair in PAIRS.items() for name in pair) + " |",
        "|---" * (2 + 2 * len(PAIRS)) + "|",
    )  # fmt: skip
    for problem, rate in product(problems, rates):
        cells = [
            ", ".join(f"{value['loss'][problem, rate, step, method]:.3g}" for step in steps)
            for pair in PAIRS.items()
            for method in pair
        ]
        yield f"| {problem} | {rate} | " + " | ".join(cells) + " |"
    yield ""


def _medians(rows: list[Row], kind: str) -> dict[tuple[str, ...], float]:
    """Over seeds, by problem, rate, step and method."""
    runs: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        runs.setdefault(tuple(row[key] for key in ("problem", "rate", "step", "method")), []).append(
            float(row[kind])
        )
    return {key: float(np.median(found)) for key, found in runs.items()}
