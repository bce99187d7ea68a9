"""The table of `benchmarks.optim.dropin`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.common.rows import read_rows

PAIRS = {"Adam": "GivensAdam", "AdamW": "GivensAdam, decay 0.01"}


def dropin_table() -> Iterator[str]:
    """Losses side by side, and how often each method has the lower one."""
    rows = read_rows("optim-dropin")
    if not rows:
        return
    problems, rates, steps, seeds = (
        list(dict.fromkeys(row[key] for row in rows)) for key in ("problem", "rate", "step", "seed")
    )
    runs: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        runs.setdefault((row["problem"], row["rate"], row["step"], row["method"]), []).append(
            float(row["loss"])
        )
    value = {key: float(np.median(losses)) for key, losses in runs.items()}
    lower = {
        step: sum(value[p, r, step, ours] < value[p, r, step, theirs] for p, r in product(problems, rates)
                  for theirs, ours in PAIRS.items())
        for step in steps
    }  # fmt: skip
    each = len(problems) * len(rates) * len(PAIRS)
    counts = ", ".join(f"in {lower[step]} of {each} after {step} steps" for step in steps)
    yield from (
        "**In the place of torch's Adam and AdamW** (`python -m benchmarks.optim.dropin`): problems that nobody tuned "
        "on, each method's own defaults, a constant rate. Training losses after "
        f"{', '.join(steps[:-1])} and {steps[-1]} minibatches of 64, medians over {len(seeds)} seeds. AdamW and "
        f"GivensAdam beside it decay weights by 0.01. GivensAdam's loss is the lower one {counts}.", "",
        "| | rate | " + " | ".join(name for pair in PAIRS.items() for name in pair) + " |",
        "|---" * (2 + 2 * len(PAIRS)) + "|",
    )  # fmt: skip
    for problem, rate in product(problems, rates):
        cells = [
            ", ".join(f"{value[problem, rate, step, method]:.3g}" for step in steps)
            for pair in PAIRS.items()
            for method in pair
        ]
        yield f"| {problem} | {rate} | " + " | ".join(cells) + " |"
    yield ""
