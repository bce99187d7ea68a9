"""The verdict: at each budget, whether the fit or the best plain rival is better, with numbers. The same every time."""

from __future__ import annotations

from swallowtail.fitting.budget import NAMES, Cost, quantity
from swallowtail.fitting.result import Rival
from swallowtail.fitting.timing import TimeModel

TIE = {"°": 1e-3, " nats": 1e-6}  # closer ones are the same
TO = {"Won": "against", "Tied": "with", "Lost": "to"}  # so that nobody takes the rival for the winner


def verdict(
    score: float, cost: Cost, rivals: list[Rival], model: TimeModel | None = None, unit: str = "°"
) -> str:
    """One sentence per verdict: the budgets won, tied and lost, each with its best rival.

    Args:
        score: of the fit; lower is better.
        cost: of the fit.
        rivals: those whose ``equal`` names a budget take part.
        model: where times come from.
        unit: of scores, "°" or " nats".
    """
    clauses: dict[str, list[str]] = {outcome: [] for outcome in TO}
    for budget, name in NAMES.items():
        here = [rival for rival in rivals if name in rival.equal.split(", ")]
        if not here:
            continue
        best = min(here, key=lambda rival: (rival.score, rival.multiply_adds))
        outcome = "Won" if score < best.score else "Lost"
        if abs(score - best.score) <= TIE[unit]:
            outcome = "Tied"
        amount = quantity(budget, cost.of(budget))
        if budget == "time" and model is not None:
            amount += f" for {model.vectors} vectors, {model.source}"
        rival = f"{best.name}, {_number(best.score, unit)}"
        clauses[outcome].append(f"{name} ({amount}) {TO[outcome]} {rival}")
    sentences = [f"{what} at equal {'; '.join(found)}." for what, found in clauses.items() if found]
    return " ".join([f"This fit: {_number(score, unit)}.", *sentences])


def _number(score: float, unit: str) -> str:
    return f"{score:.2f}{unit}" if unit == "°" else f"{score:.4f}{unit}"
