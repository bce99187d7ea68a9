"""Where the command line may write: asked before the work begins."""

from pathlib import Path

import numpy as np
import pytest
from cli.inputs import H, saved, write

import swallowtail as st
from swallowtail.cli import main


class NotReached(Exception):
    """Raised in place of the work that a check should have come before."""


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        ("-o", "H.npy", "a file of its own"),
        ("-o", "H.safetensors", "a file of its own"),
        ("-o", "link.safetensors", "a file of its own"),
        ("-o", "a.xyz", "ending in .safetensors or .npy"),
        ("-o", "a", "a.safetensors"),
        ("-o", ".", "got the folder"),
        ("-o", "none/x.safetensors", "an existing folder"),
        ("--plot", "none/x.png", "an existing folder"),
        ("--plot", ".", "got the folder"),
        ("--checkpoint", "H.safetensors", "a file of its own"),
        ("--checkpoint", "none/x", "an existing folder"),
    ],
)
def test_fit_checks_where_to_write_first(option, name, expected, tmp_path, capsys, monkeypatch):
    def unreached(*_, **__):
        raise NotReached

    monkeypatch.setattr(st, "fit_symmetric", unreached)
    source = write(tmp_path / ("H.npy" if name == "H.npy" else "H.safetensors"), H)
    (tmp_path / "link.safetensors").symlink_to(source)
    before = Path(source).read_bytes()
    assert main(["fit", source, option, str(tmp_path / name)]) == 1
    assert expected in capsys.readouterr().err
    assert Path(source).read_bytes() == before


def test_checkpoint_and_output_are_two_files(tmp_path, capsys):
    path = str(tmp_path / "x.safetensors")
    assert main(["fit", write(tmp_path / "H.npy", H), "-o", path, "--checkpoint", path]) == 1
    assert "--checkpoint: expected a file of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("y.xyz", "ending in .npy"),
        ("y", "ending in .npy"),
        ("none/y.npy", "an existing folder"),
        ("X.npy", "a file of its own"),
        (".", "got the folder"),
    ],
)
def test_apply_checks_where_to_write_first(name, expected, tmp_path, capsys, monkeypatch):
    def unreached(*_, **__):
        raise NotReached

    monkeypatch.setattr(st, "load", unreached)
    source, operator = write(tmp_path / "X.npy", H), saved(tmp_path)
    files = sorted(tmp_path.iterdir())
    assert main(["apply", operator, source, "-o", str(tmp_path / name)]) == 1
    assert expected in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == files
    assert np.array_equal(np.load(source), H)
