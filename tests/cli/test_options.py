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


def test_a_bare_number_lacks_a_unit(tmp_path, capsys):
    source = write(tmp_path / "H.npy", st.random_symmetric(20, 2, 0))
    assert main(["fit", source, "--budget", "70", "--quiet"]) == 1
    assert "got '70'; try floats:70" in capsys.readouterr().err
    assert main(["fit", source, "--budget", "time:10us", "--quiet"]) == 1
    assert "got 'time:10us'; try time:1e-4" in capsys.readouterr().err
    assert main(["fit", source, "--budget", "floats", "--rotations", "7", "--quiet"]) == 1
    assert (
        "no --rotations beside it, as each of them says how much there may be, got both, --rotations 7"
        in capsys.readouterr().err
    )


def test_rows_lack_an_option(tmp_path, capsys):
    rows = write(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((30, 5)))
    assert main(["fit", rows, "--quiet"]) == 1
    assert "got shape (30, 5); try --samples if its rows are samples" in capsys.readouterr().err
    assert main(["fit", rows, "--quiet", "--samples"]) == 0


def test_a_hint_is_in_the_words_of_the_command(tmp_path, capsys):
    source = write(tmp_path / "H.npy", st.random_symmetric(20, 2, 0))
    assert main(["fit", source, "--budget", "floats:7", "--quiet"]) == 1
    assert "try --budget floats:20 or more" in capsys.readouterr().err
