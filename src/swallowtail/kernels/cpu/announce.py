"""A word to the user before the first call of a CPU kernel makes them wait for the compiler."""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event


class _Announcer(event.Listener):
    """Numba tells when a compilation starts; a kernel found in the disk cache is not compiled."""

    def __init__(self) -> None:
        self.told = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if not self.told and dispatcher.py_func.__module__.startswith("swallowtail."):
            self.told = True
            text = "swallowtail: compiling CPU kernels, some seconds each, once; they are kept on disk\n"
            sys.stderr.write(text)

    def on_end(self, event: Any) -> None:
        pass


def announce_compilation() -> None:
    """From now on, say so once when a kernel of ours has to be compiled."""
    event.register("numba:compile", _Announcer())
