"""The command line: every format, every exit code, and no traceback for a mistake."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.numpy import save_file
from scipy.io import mmwrite

import swallowtail as st
from swallowtail.cli.commands import in_options, main
from swallowtail.fitting.watch import Watch

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


@pytest.mark.parametrize(("dtype", "size"), [("float64", 8), ("float32", 4), ("bfloat16", 2)])
def test_info_counts_the_bytes_of_the_file(dtype, size, tmp_path, capsys):
    rotation = st.Rotation.random(8, seed=0)
    operator = st.SymmetricOperator(rotation, torch.ones(8)).to(dtype=getattr(torch, dtype))
    st.save(operator, tmp_path / "h.safetensors")
    assert main(["info", str(tmp_path / "h.safetensors")]) == 0
    assert f"bytes          {size * (12 + 8)}\n" in capsys.readouterr().out


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


def test_fit_symmetrizes_when_asked(tmp_path, capsys):
    source = write(tmp_path / "H.npy", np.triu(H))
    assert main(["fit", source, "--quiet"]) == 1
    assert "try --symmetrize to" in capsys.readouterr().err
    assert main(["fit", source, "--quiet", "--symmetrize"]) == 0


def test_rotations_is_the_most_an_angle_may_take(tmp_path, capsys):
    source, output = write(tmp_path / "H.npy", H), tmp_path / "out.safetensors"
    assert main(["fit", source, "--quiet", "--angle", "1", "--rotations", "9", "-o", str(output)]) == 0
    assert "try a larger --rotations" in capsys.readouterr().out
    assert st.load(output).rotation.n_rotations == 9


def test_messages_name_options():
    for text, expected in {
        "n_rotations: expected an integer": "--rotations: expected an integer",
        "target_angle: expected degrees": "--angle: expected degrees",
        "method='hybrid': try method='auto'": "--method hybrid: try --method auto",
        "which Butterfly(n=8, depth=2) has; try depth=…, or wiring='pairs'": (
            "which Butterfly(n=8, depth=2) has; try --depth …, or --wiring pairs"
        ),
        "try symmetrize=True to fit": "try --symmetrize to fit",
        "try epsilon=1e-6, the floor": "try --epsilon 1e-6, the floor",
    }.items():
        assert in_options(text) == expected


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


class NotReached(Exception):
    """Raised in place of the work that a check should have come before."""


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        ("-o", "H.npy", "ending in .safetensors, got"),
        ("-o", "H.safetensors", "a file of its own"),
        ("-o", "link.safetensors", "a file of its own"),
        ("-o", "a.npy", "a.safetensors"),
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
        ("y.csv", "ending in .npy"),
        ("y", "ending in .npy"),
        ("none/y.npy", "an existing folder"),
        ("X.npy", "a file of its own"),
        (".", "got the folder"),
    ],
)
def test_apply_checks_where_to_write_first(name, expected, operator, tmp_path, capsys, monkeypatch):
    def unreached(*_, **__):
        raise NotReached

    monkeypatch.setattr(st, "load", unreached)
    source = write(tmp_path / "X.npy", H)
    files = sorted(tmp_path.iterdir())
    assert main(["apply", operator, source, "-o", str(tmp_path / name)]) == 1
    assert expected in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == files
    assert np.array_equal(np.load(source), H)


def test_what_a_file_should_hold(tmp_path, capsys):
    for source in (broken(tmp_path / "junk.npy"), pickled(tmp_path / "objects.npy")):
        assert main(["fit", source]) == 1
        err = capsys.readouterr().err
        assert "expected an array of numbers written by numpy.save" in err
        assert "allow_pickle" not in err
    assert main(["fit", broken(tmp_path / "H.csv", b"a,b\n1,2\n2,1\n")]) == 1
    assert "expected comma-separated numbers without a header" in capsys.readouterr().err


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
    "negative seed": lambda p: ["fit", write(p / "H.npy", H), "--seed", "-1"],
    "epsilon alone": lambda p: [
        "apply", saved(p), write(p / "X.npy", H), "-o", str(p / "y.npy"), "--epsilon", "1",
    ],
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
        ["fit", "H.npy", "--method", "magic"],
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


def test_a_negative_seed_is_named(tmp_path, capsys):
    assert main(["fit", write(tmp_path / "H.npy", H), "--seed", "-1"]) == 1
    assert "--seed: expected an integer ≥ 0, got -1" in capsys.readouterr().err


def interrupt(monkeypatch, stage="cycle", times=1):
    """Ctrl-C, once the fit has come to this stage."""
    callback = Watch.callback

    def watched(self, at, done, objective):
        if at == stage:
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
    if stage == "grow":  # at n = 16 it is one step: nothing was there to be kept
        assert (
            err
            == f"swallowtail: interrupted; there was nothing to keep in {kept} yet, so the same command begins again\n"
        )
    else:
        assert err == f"swallowtail: interrupted; the same command continues from {kept}\n"
        assert kept.is_file()
    assert main(command) == 0
    assert output.read_bytes() == undisturbed
    assert not kept.exists()


def test_ctrl_c_without_a_checkpoint(tmp_path, capsys, monkeypatch):
    interrupt(monkeypatch)
    assert main(["fit", write(tmp_path / "H.npy", H), "--quiet", "--wiring", "pairs"]) == 130
    assert capsys.readouterr().err == (
        "swallowtail: interrupted; a fit with --checkpoint FILE could be continued\n"
    )


def test_as_a_module_with_a_mistake_and_with_ctrl_c(tmp_path):
    """The real thing: exit codes seen by a shell, no traceback, and the best so far after Ctrl-C."""
    command = [sys.executable, "-m", "swallowtail"]
    done = subprocess.run([*command, "info", "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "swallowtail: load: expected a file, got nothing at none\n"
    source, output = write(tmp_path / "H.npy", st.random_symmetric(400, 40, 0)), tmp_path / "out.safetensors"
    kept = tmp_path / "kept"
    process = subprocess.Popen(
        [*command, "fit", source, "--rotations", "60000", "--wiring", "pairs", "-o", str(output),
         "--checkpoint", str(kept)],
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
    assert process.returncode == 130
    assert b"interrupted" in out
    assert f"interrupted; the same command continues from {kept}\n".encode() in err
    assert kept.is_file()
    assert b"Traceback" not in err
    assert st.load(output).n == 400
