"""Ctrl-C: the best so far is kept, and the same command continues."""

import os
import signal
import subprocess
import sys
import time

import pytest
from bounded import started
from cli.inputs import H, write

import swallowtail as st
from swallowtail.cli import main
from swallowtail.fitting.watch import Watch


def interrupt(monkeypatch, stage="cycle", times=1):
    """Ctrl-C, once the fit has come to this stage, or at its first step."""
    callback = Watch.callback

    def watched(self, at, done, objective):
        if stage in (at, None):
            for _ in range(times):
                self._interrupt(signal.SIGINT, None)
        callback(self, at, done, objective)

    monkeypatch.setattr(Watch, "callback", watched)


@pytest.mark.parametrize("stage", ["grow", "cycle"])
def test_ctrl_c_keeps_the_best_and_says_how_to_continue(stage, tmp_path, capsys):
    source, output, kept = write(tmp_path / "H.npy", H), tmp_path / "out.safetensors", tmp_path / "kept"
    command = ["fit", source, "--quiet", "--wiring", "pairs", "-o", str(output), "--checkpoint", str(kept)]
    assert main(command) == 0
    undisturbed = output.read_bytes()
    output.unlink()
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, stage)
        assert main(command) == 130
    out, err = capsys.readouterr()
    assert "interrupted" in out
    assert st.load(output).n == 16
    assert err.splitlines()[-1] == f"swallowtail: interrupted; the same command continues from {kept}"
    assert kept.is_file()
    assert main(command) == 0
    assert output.read_bytes() == undisturbed
    assert not kept.exists()


def test_ctrl_c_before_there_is_anything_to_keep(tmp_path, capsys, monkeypatch):
    interrupt(monkeypatch, None)
    source, kept = write(tmp_path / "H.npy", H), tmp_path / "kept"
    command = ["fit", source, "--quiet", "--wiring", "butterfly"]  # its fit keeps no states
    assert main([*command, "--checkpoint", str(kept)]) == 130
    said = (
        f"swallowtail: interrupted; there was nothing to keep in {kept} yet, so the same command begins again"
    )
    # Before it, on a new machine: that kernels are compiled.
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_ctrl_c_without_a_checkpoint(tmp_path, capsys, monkeypatch):
    interrupt(monkeypatch)
    assert main(["fit", write(tmp_path / "H.npy", H), "--quiet", "--wiring", "pairs"]) == 130
    said = "swallowtail: interrupted; a fit with --checkpoint FILE could be continued"
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_as_a_module_with_a_mistake_and_with_ctrl_c(tmp_path):
    """The real thing: exit codes seen by a shell, no traceback, and the best so far after Ctrl-C."""
    command = [sys.executable, "-m", "swallowtail"]
    done = subprocess.run(
        [*command, "info", "none"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr == "swallowtail: path: expected a file, got nothing at none\n"
    # Growing so many rotations takes minutes: it never ends before the interrupt, however quick the machine.
    source, output = write(tmp_path / "H.npy", st.random_symmetric(600, 40, 0)), tmp_path / "out.safetensors"
    kept = tmp_path / "kept"
    with started(
        [*command, "fit", source, "--rotations", "4000000", "--wiring", "pairs", "-o", str(output),
         "--checkpoint", str(kept)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        seen = b""
        while b" rotations\n" not in seen:
            more = os.read(process.stderr.fileno(), 4096)
            assert more, f"the fit ended before its first line of progress: {seen}"
            seen += more
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in out
    assert f"interrupted; the same command continues from {kept}\n".encode() in err
    assert kept.is_file()
    assert b"Traceback" not in err
    assert st.load(output).n == 600
