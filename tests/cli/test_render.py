"""Errors of the library in the words of the command line."""

import numpy as np
import pytest
from cli.inputs import H, write

import swallowtail as st
from swallowtail.cli import main
from swallowtail.cli.commands import _parser
from swallowtail.cli.render import OPTIONS, error_line, in_options
from swallowtail.errors import ArgumentError

ERRORS = [
    (("n_rotations", "an integer ≥ 0", -3), "--rotations: expected an integer ≥ 0, got -3"),
    (("target_angle", "degrees", 120, "try `target_angle=5`"), "--angle: expected degrees, got 120; try --angle 5"),
    (("max_seconds", "a number > 0", 0), "--seconds: expected a number > 0, got 0"),
    (("H", "symmetry", "none", "try `symmetrize=True`"), "H: expected symmetry, got none; try --symmetrize"),
    (("", "one device", "two"), "expected one device, got two"),
    (("--plot", "a picture", "out.xyz"), "--plot: expected a picture, got out.xyz"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "line"), ERRORS, ids=[line for _, line in ERRORS])
def test_errors_by_their_fields(fields, line):
    assert error_line(ArgumentError(*fields)) == line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try `method='auto'`", "try --method auto"),
        ("try `depth=…`, or `wiring='pairs'`", "try --depth …, or --wiring pairs"),
        ("try a larger `n_rotations`.", "try a larger --rotations."),
        ("Butterfly(n=8, depth=2) has method='auto'", "Butterfly(n=8, depth=2) has method='auto'"),
        ("try `numpy.save` or `dtype=float`", "try `numpy.save` or `dtype=float`"),
        ("one ` alone", "one ` alone"),
        ("", ""),
    ],
)
def test_code_in_backticks_becomes_options(text, expected):
    assert in_options(text) == expected


def test_every_option_exists(capsys):
    for command in ("fit", "apply", "explore", "reproduce"):
        with pytest.raises(SystemExit):
            _parser().parse_args([command, "--help"])
    out = capsys.readouterr().out
    assert [option for option in OPTIONS.values() if option not in out] == []


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
