"""Fits from the command line: pipes, samples, rotations, several outputs, lines for a log."""

import io
import json

import numpy as np
import pytest
from cli.inputs import H, write

import swallowtail as st
from swallowtail.cli import fit, main

QUICK = ["--quiet", "--effort", "quick", "--wiring", "pairs"]


def piped(monkeypatch, contents):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(contents)))


def as_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_matrix_can_be_piped_in_and_an_operator_out(monkeypatch, tmp_path, capfdbinary):
    text = "\n".join(" ".join(f"{x:.17g}" for x in row) for row in H).encode()
    for contents in (as_bytes(H), text):
        piped(monkeypatch, contents)
        assert main(["fit", "-", "-o", "-", *QUICK]) == 0
        out, err = capfdbinary.readouterr()
        (tmp_path / "out.safetensors").write_bytes(out)
        assert st.error_angle(H, st.load(tmp_path / "out.safetensors")) < 20
        assert b"this fit" in err
    piped(monkeypatch, b"no such thing")
    assert main(["fit", "-", *QUICK]) == 1
    assert b"standard input: expected numbers" in capfdbinary.readouterr().err


def test_samples_are_fitted_by_their_covariance(tmp_path):
    X, output = np.random.default_rng(0).standard_normal((50, 8)), tmp_path / "out.safetensors"
    assert main(["fit", "--samples", write(tmp_path / "X.npy", X), "-o", str(output), *QUICK]) == 0
    assert st.error_angle(np.cov(X.T), st.load(output)) < 20
    assert main(["fit", "--samples", write(tmp_path / "X.npy", X[:1]), *QUICK]) == 1


def test_every_output_is_written(tmp_path):
    paths = [tmp_path / f"out{ending}" for ending in fit.OUTPUTS]
    arguments = [word for path in paths for word in ("-o", str(path))]
    assert main(["fit", write(tmp_path / "H.npy", H), *arguments, *QUICK]) == 0
    dense = st.load(paths[0]).to_dense().numpy()
    np.testing.assert_allclose(np.load(paths[1]), dense)
    np.testing.assert_allclose(np.loadtxt(paths[2], delimiter=","), dense)
    np.testing.assert_allclose(np.loadtxt(paths[3]), dense)
    summary = json.loads(paths[4].read_text())
    assert summary["n"] == 16
    assert summary["angle"] == pytest.approx(st.error_angle(H, st.load(paths[0])), abs=2)


def test_a_rotation(tmp_path, capsys):
    R, output = st.random_orthogonal(8, 0), tmp_path / "q.safetensors"
    assert main(["fit-rotation", write(tmp_path / "R.npy", R), "-o", str(output), "--quiet"]) == 0
    assert st.load(output).n == 8
    assert main(["fit-rotation", write(tmp_path / "R.npy", 2 * R), "--quiet"]) == 1
    assert "orthogonal" in capsys.readouterr().err


def test_a_log_gets_lines_and_no_bar(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fit, "LINES", 0.0)
    assert main(["fit", write(tmp_path / "H.npy", H), "--effort", "quick"]) == 0
    err = capsys.readouterr().err
    assert "rotations" in err
    assert "\r" not in err
