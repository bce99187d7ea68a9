"""Bars: numbers that a benchmark is meant to reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SIGNS = {"≤": np.less_equal, "<": np.less, "≥": np.greater_equal, ">": np.greater}


class Bar(NamedTuple):
    """What was measured, its value, and on which side of which bound it should lie."""

    name: str
    value: float
    sign: str  # of SIGNS
    bound: float

    @property
    def met(self) -> bool:
        """Whether the value lies on the right side; NaN does not."""
        return bool(SIGNS[self.sign](self.value, self.bound))

    def line(self, width: int, digits: str = "8.2f") -> str:
        """One line of text, the name padded to ``width``."""
        verdict = "met   " if self.met else "MISSED"
        return f"{verdict} {self.name:{width}s} {self.value:{digits}} {self.sign} {self.bound:g}"
