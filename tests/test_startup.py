"""Ctrl-C before the command line has begun."""

import signal
import subprocess
import sys
import time

import pytest
from bounded import started

from swallowtail import startup


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_while_importing_is_one_line(tmp_path):
    """A torch that takes for ever to import stands for a slow disk."""
    (tmp_path / "numpy.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    source = startup.__file__.rpartition("swallowtail")[0]
    with started(
        [sys.executable, "-m", "swallowtail", "info", "x"],
        env={"PYTHONPATH": f"{tmp_path}:{source}", "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # whoever started the tests may ignore it
    ) as process:
        assert process.stdout.readline() == b"importing\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"swallowtail: interrupted\n")


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["python", "-m", "swallowtail", "fit"], "-m", True),
        (["python", "-W", "error", "-m", "swallowtail"], "-m", True),
        (["python", "bin/swallowtail", "info"], "bin/swallowtail", True),
        (["python", "-m", "pytest", "-m", "swallowtail"], "-m", False),
        (["python", "-m", "swallowtail.train"], "-m", False),
        (["python", "train.py", "-m", "swallowtail"], "train.py", False),
        (["python"], "", False),
    ],
)
def test_only_the_command_itself_is_meant(words, name, expected, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.setattr(sys, "argv", [name, *words[1:]])
    assert startup.is_command() is expected


def test_programs_keep_their_own_handlers():
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        startup.quiet_interrupts()
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        startup.usual_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        startup.quiet_interrupts()
        startup.usual_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
