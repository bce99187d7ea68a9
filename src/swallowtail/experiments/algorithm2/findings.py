"""What the rows say: gradients to the goal, and what each detail is worth."""

from __future__ import annotations

import numpy as np

from swallowtail.experiments.algorithm2.runs import GOALS, PAPER
from swallowtail.experiments.common import select
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.rows import Row

# variant → what the paper says about it
CLAIMS = {
    "step along Ĥ∇ℓ, as printed": ("the step is β Ĥ ∇ℓ", "printed; the text says Ĥ⁻¹"),
    "inverse learned directly": ("learning the inverse directly", "performs poorly"),
    "no floor ε": ("without the floor ε when D is inverted", "can diverge"),
    "negative elements kept": ("with negative elements of D kept", "makes it diverge"),
    "no 1/‖δu‖": ("without the factor 1/‖δu‖", "α harder to control"),
}


def findings(rows: list[Row]) -> list[Finding]:
    """Gradients to the goal, what each detail is worth, minibatches, the identity."""
    result = []
    for problem in select.kinds(rows, "problem", part="goal"):
        ours = ", ".join(f"{m} {c}" for m, c in _counts(rows, problem).items())
        note = f"gradients to a relative gap of {GOALS[problem]:g}; – not within the limit"
        result.append(Finding(f"Algorithm 2 speeds up optimisation: {problem}", "no number", ours, note))
    details = select.where(rows, part="detail")
    for variant, (claim, paper) in CLAIMS.items():
        ours = "; ".join(
            f"{p} {_log_gap(details, p, 'as in the text')} → {_log_gap(details, p, variant)}"
            for p in select.kinds(details, "problem")
        )
        result.append(Finding(claim, paper, ours, "relative gap at the end, as in the text → so"))
    by = {e: select.values(rows, "gap", part="epsilon", epsilon=e) for e in select.kinds(rows, "epsilon")}
    ours = ", ".join(f"{e:g}: {np.median(gaps):.1e}" for e, gaps in by.items())
    result.append(
        Finding("a minimal value ε on D", "needed", ours, "relative gap at the end by ε, logistic regression")
    )
    last = select.where(rows, part="minibatch", last=1)
    ours = ", ".join(f"{m} {select.mean(last, 'loss', method=m):.3f}" for m in select.kinds(last, "method"))
    note = f"loss after {max(select.kinds(last, 'gradients'), default=0)} gradients"
    result.append(Finding("minibatches: two gradients per step, or reuse", "no number", ours, note))
    ours = "; ".join(f"{r['average']}: {r['deviation']:.1e}" for r in select.where(rows, part="identity"))
    note = "relative deviation; printed, Ĥδu is counted p/|A| times: a factor |A|/p is dropped"
    result.append(Finding("minibatch gradients of L average to the batch gradient", "exactly", ours, note))
    return result


def text(rows: list[Row]) -> str:
    """Who needs fewer gradients, and how often D had negative elements."""
    fewest = {}
    for problem in select.kinds(rows, "problem", part="goal"):
        counts = {m: c for m, c in _medians(rows, problem).items() if np.isfinite(c)}
        fewest[problem] = min(counts, key=lambda m: counts[m]) if counts else "nobody"
    best = ", ".join(f"{method} on {problem}" for problem, method in fewest.items())
    won = [problem for problem, method in fewest.items() if method == PAPER]
    negative = select.mean(rows, "negative", part="detail", variant="negative elements kept")
    return (
        f"Fewest gradients to the goal: {best}. Algorithm 2 as the paper has it "
        f"{'is first on ' + ', '.join(won) if won else 'is first nowhere'}. Where negative elements of D are kept, "
        f"some are there at {100 * negative:.0f} % of the steps."
    )


def _medians(rows: list[Row], problem: str) -> dict[str, float]:
    """Gradients to the goal by method, median over seeds; infinite where most runs did not arrive."""
    result = {}
    for method in select.kinds(rows, "method", part="goal", problem=problem):
        found = select.where(rows, part="goal", problem=problem, method=method)
        result[method] = float(np.median([row.get("gradients", np.inf) for row in found]))
    return result


def _counts(rows: list[Row], problem: str) -> dict[str, str]:
    return {m: f"{c:.0f}" if np.isfinite(c) else "–" for m, c in _medians(rows, problem).items()}


def _log_gap(details: list[Row], problem: str, variant: str) -> str:
    found = select.where(details, problem=problem, variant=variant)
    if any(row["diverged"] for row in found):
        return f"diverged in {sum(row['diverged'] for row in found)} of {len(found)}"
    return f"{np.median([row['gap'] for row in found]):.1e}"
