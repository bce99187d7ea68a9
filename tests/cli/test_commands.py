"""The commands: every format, what they print, what they write."""

import sys

import numpy as np
import pytest
import torch
from cli.inputs import FORMATS, H, write

import swallowtail as st
from swallowtail.cli import main


@pytest.fixture
def operator(tmp_path):
    path = tmp_path / "operator.safetensors"
    st.save(st.fit_symmetric(H, wiring="pairs").operator, path)
    return str(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_fit_reads_every_format(kind, tmp_path, capsys):
    output = tmp_path / "out.safetensors"
    source = write(tmp_path / f"H.{kind}", H)
    assert main(["fit", source, "-o", str(output), "--wiring", "pairs", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("pairs: angle ")
    assert "this fit" in out
    assert f"saved to {output}" in out
    assert [
        line for line in err.splitlines() if "compiling" not in line
    ] == []  # the first run says that it does
    assert st.error_angle(H, st.load(output)) < 15


@pytest.mark.parametrize("kind", FORMATS)
def test_apply_reads_every_format(kind, operator, tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((16, 3))
    output = tmp_path / "y.npy"
    assert main(["apply", operator, write(tmp_path / f"X.{kind}", X), "-o", str(output)]) == 0
    np.testing.assert_allclose(np.load(output), st.load(operator) @ X, atol=1e-12)
    assert "saved (16, 3)" in capsys.readouterr().out


def test_apply_one_vector_and_back(operator, tmp_path):
    x, y, z = (str(tmp_path / name) for name in ("x.npy", "y.npy", "z.npy"))
    np.save(x, np.arange(16.0))
    assert main(["apply", operator, x, "-o", y]) == 0
    assert main(["apply", operator, y, "-o", z, "--inverse"]) == 0
    np.testing.assert_allclose(np.load(z), np.arange(16.0), atol=1e-8)


def test_info(operator, tmp_path, capsys):
    assert main(["info", operator]) == 0
    out = capsys.readouterr().out
    for word in ("SymmetricOperator", "n              16", "float64", "(dense: 256)", "trace", "log det"):
        assert word in out
    rotation = tmp_path / "q.safetensors"
    st.save(st.Rotation.random(8, seed=0), rotation)
    assert main(["info", str(rotation)]) == 0
    assert "eigenvalues" not in capsys.readouterr().out


@pytest.mark.parametrize(("dtype", "size"), [("float64", 8), ("float32", 4), ("bfloat16", 2)])
def test_info_counts_the_bytes_of_the_file(dtype, size, tmp_path, capsys):
    rotation = st.Rotation.random(8, seed=0)
    operator = st.SymmetricOperator(rotation, torch.ones(8)).to(dtype=getattr(torch, dtype))
    st.save(operator, tmp_path / "h.safetensors")
    assert main(["info", str(tmp_path / "h.safetensors")]) == 0
    assert f"bytes in file  {size * (12 + 8)}\n" in capsys.readouterr().out


def test_hybrid_fits_are_described_and_inverted(tmp_path, capsys):
    A, path = np.diag(np.arange(1.0, 17.0)) + 3.0, str(tmp_path / "h.safetensors")
    source = write(tmp_path / "H.npy", A)
    arguments = ["fit", source, "--method", "hybrid", "--rotations", "40", "--quiet", "-o", path]
    assert main(arguments) == 0
    assert isinstance(st.load(path), st.HybridOperator)
    assert main(["info", path]) == 0
    assert f"rank-one terms {st.load(path).rank}\n" in capsys.readouterr().out
    columns, output = write(tmp_path / "X.npy", np.eye(16)), str(tmp_path / "y.npy")
    assert main(["apply", path, columns, "-o", output, "--inverse"]) == 0
    np.testing.assert_allclose(np.load(output), np.linalg.inv(A), atol=1e-4)


def test_epsilon_is_the_floor_of_an_inverse(tmp_path, capsys):
    path, columns, output = (str(tmp_path / name) for name in ("h.safetensors", "x.npy", "y.npy"))
    st.save(st.SymmetricOperator(st.Rotation.identity(4), torch.tensor([0.0, 1.0, 2.0, 4.0])), path)
    np.save(columns, np.ones(4, np.float32))
    assert main(["apply", path, columns, "-o", output, "--inverse"]) == 1
    assert "try --epsilon 1e-6" in capsys.readouterr().err
    assert main(["apply", path, columns, "-o", output, "--inverse", "--epsilon", "0.5"]) == 0
    np.testing.assert_allclose(np.load(output), [2, 1, 0.5, 0.25])


def test_version(capsys):
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"swallowtail {st.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rotations", "10"],
        ["--angle", "20"],
        ["--angle", "20", "--rotations", "60"],
        ["--method", "hybrid"],
        ["--depth", "2", "--wiring", "butterfly"],
        ["--method", "sgd"],
        ["--target", "inverse"],
        ["--target", "likelihood"],
        ["--seconds", "5", "--seed", "3"],
    ],
)
def test_fit_options(arguments, tmp_path, capsys):
    assert main(["fit", write(tmp_path / "H.npy", H + 0.01 * np.eye(16)), "--quiet", *arguments]) == 0
    assert "angle" in capsys.readouterr().out


def test_a_terminal_gets_a_bar_unless_quiet(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["fit", write(tmp_path / "H.npy", H), "--wiring", "pairs"]) == 0
    assert "rotations, error" in capsys.readouterr().err


def test_plot(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.png"
    assert (
        main(["fit", write(tmp_path / "H.npy", H), "--wiring", "pairs", "--quiet", "--plot", str(picture)])
        == 0
    )
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert f"plot in {picture}" in capsys.readouterr().out


def test_a_checkpoint_is_taken_up_and_removed(tmp_path):
    source, saved = write(tmp_path / "H.npy", H), tmp_path / "half-way"
    assert main(["fit", source, "--quiet", "--checkpoint", str(saved)]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["H.npy"]
