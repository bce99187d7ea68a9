"""How a command starts: Ctrl-C before it has begun, standard streams that are closed."""

import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from bounded import started

from swallowtail import Rotation, save, startup


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
        # Whoever started the tests may ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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


posix = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")


@posix
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_works_without_standard_streams(closed, tmp_path):
    operator = tmp_path / "h.safetensors"
    save(Rotation.random(8, seed=0), operator)
    vectors, output = tmp_path / "X.npy", tmp_path / "Y.npy"
    np.save(vectors, np.eye(8))
    command = [
        sys.executable,
        "-m",
        "swallowtail",
        "apply",
        *map(str, (operator, vectors)),
        "-o",
        str(output),
    ]
    source = startup.__file__.rpartition("swallowtail")[0]
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        f"{shlex.join(command)} {closed}", shell=True, env=environment, timeout=200, check=False
    )
    assert done.returncode == 0
    assert np.load(output).shape == (8, 8)


@posix
def test_nothing_is_read_where_there_is_no_input(tmp_path):
    source = startup.__file__.rpartition("swallowtail")[0]
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = f"{shlex.join([sys.executable, '-m', 'swallowtail', 'fit', '-'])} <&-"
    done = subprocess.run(
        command, shell=True, env=environment, timeout=200, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


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
