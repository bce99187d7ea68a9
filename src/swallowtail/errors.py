"""The error that a wrong argument raises, the one where an optional package is absent, and warnings to the user."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class ArgumentError(ValueError, TypeError):
    """An argument that cannot be used: what was expected, what came, what to do about it.

    It is a ValueError and a TypeError, so that callers may catch either.

    Args:
        name: of the argument; "" where no single argument is at fault.
        expected: what would have been accepted.
        got: what came instead.
        hint: what to do, starting with a verb ("try …", "leave it out"); "" if there is nothing to add. Arguments in
            it stand in backticks, "try `depth=2`": the command line shows those as options.

    >>> print(ArgumentError("n", "an integer ≥ 1", 0, "try 1 or more"))
    n: expected an integer ≥ 1, got 0; try 1 or more
    """

    def __init__(self, name: str, expected: str, got: Any, hint: str = "") -> None:
        # So that it can be pickled. Not by super().__init__, which torch.compile cannot follow.
        self.args = (name, expected, got, hint)
        self.name, self.expected, self.got, self.hint = name, expected, got, hint

    def __str__(self) -> str:
        start = f"{self.name}: " if self.name else ""
        end = f"; {self.hint}" if self.hint else ""
        return f"{start}expected {self.expected}, got {self.got}{end}"


def absent(what: str, package: str, extra: str, *, name: str | None = None) -> ImportError:
    """What to raise where a package is not installed that ``extra`` brings; ``name`` is that of its module.

    >>> print(absent("plot", "matplotlib", "plot"))
    plot needs matplotlib, which is not installed; try: pip install "swallowtail[plot]"
    """
    text = f'{what} needs {package}, which is not installed; try: pip install "swallowtail[{extra}]"'
    return ImportError(text, name=name)


def warn_user(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning that points at the caller's own line, however deep in this package and in torch it arises."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("swallowtail", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
