"""Mistyped commands, options and choices: the nearest word is named, and the usage is that of the command."""

import pytest

from swallowtail.cli import main


@pytest.mark.parametrize(
    ("line", "meant", "usage"),
    [
        ("ft cov.npy", "fit", "usage: swallowtail [-h]"),
        ("fit cov.npy --budgt 3", "--budget", "usage: swallowtail fit"),
        ("fit cov.npy --metod=pairs", "--method", "usage: swallowtail fit"),
        ("fit cov.npy --effort bset", "best", "usage: swallowtail fit"),
        ("info H --zzz", None, "usage: swallowtail info"),
    ],
)
def test_what_may_have_been_meant(line, meant, usage, capsys):
    with pytest.raises(SystemExit) as error:
        main(line.split())
    told = capsys.readouterr().err
    assert error.value.code == 2
    assert told.startswith(usage)
    assert told.endswith(f"; did you mean {meant}?\n") if meant else "did you mean" not in told


def test_nothing_shows_what_there_is(capsys):
    with pytest.raises(SystemExit) as error:
        main([])
    assert error.value.code == 2
    told = capsys.readouterr().err
    assert "fit-rotation" in told
    assert "look at a matrix" in told
