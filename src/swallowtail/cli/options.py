"""Options that take more than a word to read or to check."""

from __future__ import annotations

from pathlib import Path

from swallowtail.cli.files import check_outputs
from swallowtail.errors import ArgumentError, absent

EXAMPLES = {"bytes": "bytes:20000", "multiply_adds": "multiply_adds:16000", "time": "time:1e-4"}


def budget_of(text: str) -> str | tuple[str, float]:
    """A unit, or a unit and an amount.

    >>> budget_of("time"), budget_of("floats:4704")
    ('time', ('floats', 4704.0))
    """
    unit, colon, amount = text.partition(":")
    expected = "a unit, or one and a number"
    if not colon:
        if text.isdecimal():
            raise ArgumentError("--budget", expected, repr(text), f"try floats:{text}")
        return unit
    try:
        return unit, float(amount)
    except ValueError:
        hint = f"try {EXAMPLES.get(unit, 'floats:4704')}"
        raise ArgumentError("--budget", expected, repr(text), hint) from None


def check_plot(path: Path) -> None:
    """Before the fit, not after it."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise absent("--plot", "matplotlib", "plot", name=error.name) from error
    check_outputs("--plot", [path], ())
    if path.suffix[1:] not in FigureCanvasBase.get_supported_filetypes():
        raise ArgumentError("--plot", "a file like plot.png or plot.pdf", path.name)
