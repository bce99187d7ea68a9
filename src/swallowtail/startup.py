"""Ctrl-C while the command line is still importing, which takes seconds: one line instead of a traceback.

`python -m swallowtail` imports the package before any code of the command runs, so the package asks here first. Other
programs that import swallowtail keep their own handling of Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType


def is_command() -> bool:
    """Whether this process is the command line: `python -m swallowtail`, or the installed `swallowtail`."""
    program, words = sys.argv[0] if sys.argv else "", sys.orig_argv
    if program == "-m":  # Python writes this there while it looks for the module
        return words[words.index("-m") + 1 :][:1] == ["swallowtail"]
    return os.path.basename(program) in ("swallowtail", "swallowtail.exe")


def quiet_interrupts() -> None:
    """Until `usual_interrupts`, Ctrl-C ends the process with one line and exit code 130."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _leave)


def usual_interrupts() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def open_streams() -> None:
    """Give the command standard streams where it was started without them: they lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open until the end)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"swallowtail: interrupted\n")
    os._exit(130)  # there is nothing to lose yet, and unwinding half-made imports prints tracebacks
