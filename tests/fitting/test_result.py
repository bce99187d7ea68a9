"""The record of a fit, its printed table and its plots."""

import numpy as np
import pytest
from fitting.common import operator_error

import swallowtail as st
from swallowtail.fitting import fit_symmetric
from swallowtail.metrics import error_angle

N = 12


H = st.random_symmetric(N, 3, 0)


def test_the_record():
    A = st.random_symmetric(64, 5, 2)
    result = fit_symmetric(A, n_rotations=192)
    _, low, high = result.angle_estimate
    assert low < result.angle < high < low + 1
    assert result.angle == pytest.approx(error_angle(A, result.operator, seed=7), abs=0.5)
    assert result.relative_error == pytest.approx(operator_error(A, result), rel=1e-9)
    assert (result.n_products, result.status, result.target) == (0, "converged", "matrix")
    assert result.floats == 192 + 64
    assert result.bytes == 4 * 256 + 4 * 192
    assert result.multiply_adds == 4 * 192 + 64
    assert result.seconds > 0
    assert all(len(step) == 3 for step in result.history)
    assert result.history[-1][2] == pytest.approx(result.relative_error**2, rel=1e-6)
    with pytest.raises(AttributeError):
        result.angle = 0.0


def test_the_printed_table():
    result = fit_symmetric(st.random_symmetric(64, 5, 2), n_rotations=192)
    lines = str(result).splitlines()
    assert lines[0].startswith(f"{result.method}: angle of H {result.angle:.2f}° (")
    assert lines[1].split() == ["form", "angle", "rel.", "error", "floats", "bytes", "mult-adds", "equal"]
    assert lines[2].startswith("this fit")
    assert len(lines) == 4 + len(result.rivals)
    assert lines[-1] == result.message
    for rival in result.rivals:
        assert any(line.startswith(rival.name) and line.endswith(rival.equal) for line in lines)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    for number, result in enumerate(
        (fit_symmetric(H), fit_symmetric(np.eye(2)), fit_symmetric(H + np.eye(N), target="likelihood"))
    ):
        path = tmp_path / f"{number}.png"
        result.plot(path)
        assert path.read_bytes()[:4] == b"\x89PNG"
