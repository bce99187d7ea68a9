"""The command line: `python -m swallowtail`, or `swallowtail` once installed."""

from swallowtail.cli.commands import main

__all__ = ["main"]
