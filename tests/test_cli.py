"""The command line: every format, every exit code, and no traceback for a mistake."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import save_file
from scipy.io import mmwrite

import swallowtail as st
from swallowtail.cli import main

H = st.random_symmetric(16, 3, 0)


def write(path, A):
    """A in the format of the path's ending."""
    kind = path.name.split(".", 1)[1]
    if kind == "npy":
        np.save(path, A)
    elif kind == "npz":
        sp.save_npz(path, sp.csr_array(A))
    elif kind == "array.npz":
        np.savez(path, A)
    elif kind == "csv":
        np.savetxt(path, A, delimiter=",", fmt="%.17g")
    elif kind == "mtx":
        mmwrite(path, A)
    elif kind == "sparse.mtx":
        mmwrite(path, sp.coo_array(A))
    else:
        save_file({"H": np.ascontiguousarray(A)}, path)
    return str(path)


FORMATS = ("npy", "npz", "array.npz", "csv", "mtx", "sparse.mtx", "safetensors")


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
    assert err == ""
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rotations", "10"],
        ["--angle", "20"],
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


def test_fit_symmetrizes_when_asked(tmp_path, capsys):
    source = write(tmp_path / "H.npy", np.triu(H))
    assert main(["fit", source, "--quiet"]) == 1
    assert "symmetrize" in capsys.readouterr().err
    assert main(["fit", source, "--quiet", "--symmetrize"]) == 0


def test_progress_is_on_unless_quiet(tmp_path, capsys):
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


def broken(path, content=b"no such thing"):
    path.write_bytes(content)
    return str(path)


MISTAKES = {
    "no file": lambda p: ["fit", str(p / "none.npy")],
    "a folder": lambda p: ["fit", str(p)],
    "unknown ending": lambda p: ["fit", broken(p / "H.txt")],
    "no ending": lambda p: ["fit", broken(p / "H")],
    "broken npy": lambda p: ["fit", broken(p / "H.npy")],
    "empty npy": lambda p: ["fit", broken(p / "H.npy", b"")],
    "broken npz": lambda p: ["fit", broken(p / "H.npz")],
    "truncated npz": lambda p: ["fit", broken(p / "H.npz", b"PK\x03\x04")],
    "broken csv": lambda p: ["fit", broken(p / "H.csv")],
    "empty csv": lambda p: ["fit", broken(p / "H.csv", b"")],
    "ragged csv": lambda p: ["fit", broken(p / "H.csv", b"1,2\n3\n")],
    "broken mtx": lambda p: ["fit", broken(p / "H.mtx")],
    "broken safetensors": lambda p: ["fit", broken(p / "H.safetensors")],
    "pickle": lambda p: ["fit", pickled(p / "H.npy")],
    "two arrays": lambda p: ["fit", two_arrays(p / "H.npz")],
    "two tensors": lambda p: ["fit", two_tensors(p / "H.safetensors")],
    "not square": lambda p: ["fit", write(p / "H.npy", H[:, :3])],
    "NaN": lambda p: ["fit", write(p / "H.csv", np.full((2, 2), np.nan))],
    "complex": lambda p: ["fit", write(p / "H.npy", H + 0j)],
    "negative budget": lambda p: ["fit", write(p / "H.npy", H), "--rotations", "-3"],
    "angle too large": lambda p: ["fit", write(p / "H.npy", H), "--angle", "120"],
    "no time": lambda p: ["fit", write(p / "H.npy", H), "--seconds", "0"],
    "singular": lambda p: ["fit", write(p / "H.npy", np.ones((3, 3))), "--target", "inverse"],
    "output into nothing": lambda p: ["fit", write(p / "H.npy", H), "-o", str(p / "none" / "out.safetensors")],
    "plot into nothing": lambda p: ["fit", write(p / "H.npy", H), "--plot", str(p / "none" / "out.png")],
    "plot of unknown kind": lambda p: ["fit", write(p / "H.npy", H), "--plot", str(p / "out.xyz")],
    "info on nothing": lambda p: ["info", str(p / "none.safetensors")],
    "info on a matrix": lambda p: ["info", write(p / "H.npy", H)],
    "info on foreign tensors": lambda p: ["info", write(p / "H.safetensors", H)],
    "apply to wrong size": lambda p: ["apply", saved(p), write(p / "X.npy", H[:3]), "-o", str(p / "y.npy")],
    "apply into nothing": lambda p: ["apply", saved(p), write(p / "X.npy", H), "-o", str(p / "none" / "y.npy")],
    "apply the inverse of a rotation": lambda p: [
        "apply", rotation(p), write(p / "X.npy", H), "-o", str(p / "y.npy"), "--inverse",
    ],
}  # fmt: skip


def pickled(path):
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    return str(path)


def two_arrays(path):
    np.savez(path, A=H, B=H)
    return str(path)


def two_tensors(path):
    save_file({"A": H, "B": H}, path)
    return str(path)


def saved(folder):
    st.save(st.SymmetricOperator(st.Rotation.random(16, seed=0), np.ones(16)), folder / "h.safetensors")
    return str(folder / "h.safetensors")


def rotation(folder):
    st.save(st.Rotation.random(16, seed=0), folder / "q.safetensors")
    return str(folder / "q.safetensors")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line_and_exit_code_1(name, tmp_path, capsys):
    arguments = MISTAKES[name](tmp_path)
    arguments += ["--quiet"] if arguments[0] == "fit" else []
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("swallowtail: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fit"],
        ["fly"],
        ["fit", "H.npy", "--rotations", "few"],
        ["fit", "H.npy", "--rotations", "3", "--angle", "5"],
    ],
)
def test_mistakes_in_the_command_are_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert "usage: swallowtail" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("fit", "info", "apply"))


def test_as_a_module_with_a_mistake_and_with_ctrl_c(tmp_path):
    """The real thing: exit codes seen by a shell, no traceback, and the best so far after Ctrl-C."""
    command = [sys.executable, "-m", "swallowtail"]
    done = subprocess.run([*command, "info", "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "swallowtail: load: expected a file, got nothing at none\n"
    source, output = write(tmp_path / "H.npy", st.random_symmetric(400, 40, 0)), tmp_path / "out.safetensors"
    process = subprocess.Popen(
        [*command, "fit", source, "--rotations", "60000", "--wiring", "pairs", "-o", str(output)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        seen = b""
        while b"rotations, error" not in seen:
            seen += os.read(process.stderr.fileno(), 4096)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert b"interrupted" in out
    assert b"Traceback" not in err
    assert st.load(output).n == 400
