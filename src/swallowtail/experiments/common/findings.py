"""A line of the report's table, and the phrases that several experiments use in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Finding(NamedTuple):
    """One line of the report's table: what the paper claims and what we measured."""

    claim: str
    paper: str
    ours: str
    note: str = ""


def away_from(paper: float, ours: float, bar: float) -> str:
    """For the table: "+1.2° from the paper, within ±2°"."""
    verdict = f"within ±{bar:g}°" if abs(ours - paper) <= bar else f"beyond ±{bar:g}°"
    if verdict.startswith("beyond"):
        verdict += ", ours the better" if ours < paper else ", ours the worse"
    return f"{ours - paper:+.1f}° from the paper, {verdict}".replace("-0.0", "0.0").replace("-", "−")


def mean_and_spread(values: Sequence[float]) -> str:
    """For the table: "35.2° (33.9 … 36.8)", the mean and the extremes over seeds."""
    mean = f"{np.mean(values):.1f}°"
    return f"{mean} ({min(values):.1f} … {max(values):.1f})" if len(values) > 1 else mean
