"""A disk that is full when the work is done: old files stay whole, and the work is kept elsewhere."""

import json
import os
import re
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cli.inputs import H, saved, write

import swallowtail as st
from swallowtail.cli import main

resource = pytest.importorskip("resource")


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """A new machine compiles, says so on a line of its own, and has to write the kernels: before a disk is full."""
    folder = tmp_path_factory.mktemp("compiled")
    source, columns = write(folder / "H.npy", H), write(folder / "X.npy", np.ones((16, 100)))
    assert main(["fit", source, "--quiet", "-o", str(folder / "h.safetensors")]) == 0
    assert main(["apply", saved(folder), columns, "-o", str(folder / "Y.npy")]) == 0


@contextmanager
def files_up_to(size):
    """No file may grow beyond so many bytes: what a full disk does, without one."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_fit_is_saved_elsewhere(tmp_path, capsys, monkeypatch):
    """/dev/full is always full."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    output = tmp_path / "out.safetensors"
    output.symlink_to("/dev/full")
    assert main(["fit", write(tmp_path / "H.npy", H), "--quiet", "-o", str(output)]) == 1
    out, err = capsys.readouterr()
    assert "angle of H" in out
    assert f"saved to {output}" not in out
    first, second = err.splitlines()
    assert first == f"swallowtail: {output} cannot be written: No space left on device"
    found = re.fullmatch(r"swallowtail: it is in (.*\.safetensors) instead", second)
    assert st.load(found[1]).n == 16
    assert Path(found[1]).parent == tmp_path / "elsewhere"


def test_with_no_room_anywhere_it_is_one_line_and_the_old_file_stays(tmp_path, capsys):
    output = Path(saved(tmp_path))
    before = output.read_bytes()
    with files_up_to(100):
        assert main(["fit", write_large(tmp_path), "--quiet", "-o", str(output)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert "Traceback" not in err
    assert "File too large" in err
    assert output.read_bytes() == before


def write_large(folder):
    with files_up_to(resource.RLIM_INFINITY):
        return write(folder / "H.npy", H)


def test_in_a_terminal_the_user_is_asked(tmp_path, capsys, monkeypatch):
    answers = iter(["/dev/full", str(tmp_path / "mine.safetensors")])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    for name in ("pathlib.Path.cwd", "tempfile.gettempdir"):
        monkeypatch.setattr(name, lambda: Path("/dev/full"))
    monkeypatch.setattr("os.path.expanduser", lambda path: "/dev/full")
    output = tmp_path / "out.safetensors"
    output.symlink_to("/dev/full")
    assert main(["fit", write(tmp_path / "H.npy", H), "--quiet", "-o", str(output)]) == 1
    assert "cannot be written either" in capsys.readouterr().err
    assert st.load(tmp_path / "mine.safetensors").n == 16


def test_apply_leaves_the_old_output(tmp_path, capsys):
    columns, output = write(tmp_path / "X.npy", np.ones((16, 100))), tmp_path / "Y.npy"
    np.save(output, H)
    output.chmod(0o600)
    before, operator = output.read_bytes(), saved(tmp_path)
    with files_up_to(2000):
        assert main(["apply", operator, columns, "-o", str(output)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert output.read_bytes() == before
    assert main(["apply", operator, columns, "-o", str(output)]) == 0
    assert np.load(output).shape == (16, 100)
    assert os.stat(output).st_mode & 0o777 == 0o600


def test_numbers_leave_the_old_ones(tmp_path, capsys):
    output = tmp_path / "out.json"
    output.write_text("old")
    output.chmod(0o600)
    command = ["fit", write(tmp_path / "H.npy", H), "--quiet", "-o", str(output)]
    with files_up_to(100):
        assert main(command) == 1
    assert output.read_text() == "old"
    assert main(command) == 0
    assert json.loads(output.read_text())["n"] == 16
    assert os.stat(output).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("answer", ["", None])
def test_whoever_gives_up_is_told_once(answer, tmp_path, capsys, monkeypatch):
    """None stands for Ctrl-D, which ends the input."""

    def asked(prompt):
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", asked)
    output = tmp_path / "out.safetensors"
    output.symlink_to("/dev/full")
    source = write(tmp_path / "H.npy", H)
    for name in ("pathlib.Path.cwd", "tempfile.gettempdir"):
        monkeypatch.setattr(name, lambda: Path("/dev/full"))
    monkeypatch.setattr("os.path.expanduser", lambda path: "/dev/full")
    assert main(["fit", source, "--quiet", "-o", str(output)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "swallowtail: [Errno 28] No space left on device"


def test_a_plot_leaves_the_old_one(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    plot.write_bytes(b"old")
    command = ["fit", write(tmp_path / "H.npy", H), "--quiet", "--plot", str(plot)]
    with files_up_to(2000):
        assert main(command) == 1
    assert plot.read_bytes() == b"old"
    assert main(command) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
