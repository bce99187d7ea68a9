"""A mistake of the user: one line, the exit code, no traceback."""

import numpy as np
import pytest
from cli.inputs import H, broken, huge, pickled, rotation, saved, two_arrays, two_tensors, write

from swallowtail.cli import main

MISTAKES = {
    "no file": lambda p: ["fit", str(p / "none.npy")],
    "a folder": lambda p: ["fit", str(p)],
    "unknown ending": lambda p: ["fit", broken(p / "H.xyz")],
    "no ending": lambda p: ["fit", broken(p / "H")],
    "broken npy": lambda p: ["fit", broken(p / "H.npy")],
    "empty npy": lambda p: ["fit", broken(p / "H.npy", b"")],
    "broken npz": lambda p: ["fit", broken(p / "H.npz")],
    "truncated npz": lambda p: ["fit", broken(p / "H.npz", b"PK\x03\x04")],
    "broken csv": lambda p: ["fit", broken(p / "H.csv")],
    "a header alone": lambda p: ["fit", broken(p / "H.csv", b"a,b\n")],
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
    "budget in no unit": lambda p: ["fit", write(p / "H.npy", H), "--budget", "flops"],
    "budget of no number": lambda p: ["fit", write(p / "H.npy", H), "--budget", "floats:many"],
    "budget too small": lambda p: ["fit", write(p / "H.npy", H), "--budget", "floats:1"],
    "budget and rotations": lambda p: ["fit", write(p / "H.npy", H), "--budget", "floats", "--rotations", "3"],
    "angle too large": lambda p: ["fit", write(p / "H.npy", H), "--angle", "120"],
    "negative seed": lambda p: ["fit", write(p / "H.npy", H), "--seed", "-1"],
    "epsilon alone": lambda p: [
        "apply", saved(p), write(p / "X.npy", H), "-o", str(p / "y.npy"), "--epsilon", "1",
    ],
    "samples beyond float64": lambda p: ["fit", broken(p / "X.csv", b"1e400,1\n1,2\n"), "--samples"],
    "samples that fit nowhere": lambda p: ["fit", huge(p / "X.npz"), "--samples"],
    "vectors that fit nowhere": lambda p: ["apply", saved(p), huge(p / "X.npz"), "-o", str(p / "y.npy")],
    "no such port": lambda p: ["explore", write(p / "H.npy", H), "--no-browser", "--port", "65536"],
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


def test_what_a_file_should_hold(tmp_path, capsys):
    for source in (broken(tmp_path / "junk.npy"), pickled(tmp_path / "objects.npy")):
        assert main(["fit", source]) == 1
        err = capsys.readouterr().err
        assert "expected an array of numbers written by numpy.save" in err
        assert "allow_pickle" not in err
    assert main(["fit", broken(tmp_path / "H.csv", b"a,b\n1,2\n2,x\n")]) == 1
    assert "expected numbers, separated by commas, semicolons" in capsys.readouterr().err
