"""A budget from the command line to the fit."""

import numpy as np
from cli.inputs import write

import swallowtail as st
from swallowtail.cli import main


def test_a_budget_is_kept(tmp_path, capsys):
    source, target = (
        write(tmp_path / "H.npy", st.random_symmetric(20, 2, 0)),
        str(tmp_path / "out.safetensors"),
    )
    assert main(["fit", source, "--budget", "floats:70", "--quiet", "-o", target]) == 0
    assert "at equal floats (" in capsys.readouterr().out
    operator = st.load(target)
    stored = operator.rotation.n_rotations + 20 + 21 * getattr(operator, "rank", 0)
    assert stored <= 70 or np.ptp(operator.symmetric.eigenvalues.numpy()) == 0


def test_a_hint_is_in_the_words_of_the_command(tmp_path, capsys):
    source = write(tmp_path / "H.npy", st.random_symmetric(20, 2, 0))
    assert main(["fit", source, "--budget", "floats:7", "--quiet"]) == 1
    assert "try --budget floats:20 or more" in capsys.readouterr().err
