"""Products with a saved operator: rows or columns, pipes, several outputs."""

import io
from pathlib import Path

import numpy as np
import pytest
from cli.inputs import saved, write

import swallowtail as st
from swallowtail.cli import main


def test_vectors_may_be_rows(tmp_path, capsys):
    X, outputs = np.random.default_rng(0).standard_normal((3, 16)), [tmp_path / "y.npy", tmp_path / "y.csv"]
    arguments = ["apply", saved(tmp_path), write(tmp_path / "X.npy", X)]
    assert main([*arguments, "-o", str(outputs[0])]) == 1
    assert "try --rows" in capsys.readouterr().err
    assert main([*arguments, "--rows", "-o", str(outputs[0]), "-o", str(outputs[1])]) == 0
    expected = (st.load(saved(tmp_path)) @ X.T).T
    np.testing.assert_allclose(np.load(outputs[0]), expected)
    np.testing.assert_allclose(np.loadtxt(outputs[1], delimiter=","), expected)


def test_vectors_may_be_piped(tmp_path, monkeypatch, capfdbinary):
    file = io.BytesIO()
    np.save(file, np.ones(16))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.getvalue())))
    assert main(["apply", saved(tmp_path), "-", "-o", "-"]) == 0
    found = np.load(io.BytesIO(capfdbinary.readouterr().out))
    np.testing.assert_allclose(found, st.load(saved(tmp_path)) @ np.ones(16))


def test_an_operator_may_be_piped(tmp_path, monkeypatch, capsys):
    contents = Path(saved(tmp_path)).read_bytes()
    x, output = write(tmp_path / "x.npy", np.ones(16)), tmp_path / "y.npy"
    for arguments, code in (
        (["info", "-"], 0),
        (["apply", "-", x, "-o", str(output)], 0),
        (["apply", "-", "-"], 1),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(contents)))
        assert main([*arguments, "-o", "-"] if code else arguments) == code
    assert "try a file for one of them" in capsys.readouterr().err
    np.testing.assert_allclose(np.load(output), st.load(saved(tmp_path)) @ np.ones(16))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"no such thing")))
    assert main(["info", "-"]) == 1
    assert "standard input: expected a safetensors file" in capsys.readouterr().err


def test_a_matrix_is_no_operator(tmp_path, capsys):
    source = write(tmp_path / "H.npy", np.eye(4))
    assert main(["info", source]) == 1
    assert f"try swallowtail fit {source} -o {source[:-4]}.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("twice", [["-o", "-", "-o", "-"], ["-o", "y.npy", "-o", "y.npy"]])
def test_an_output_is_not_written_twice(twice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["apply", saved(tmp_path), write(tmp_path / "X.npy", np.ones(16)), *twice]) == 1
