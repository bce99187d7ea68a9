"""Counts by hand for n = 4, statistics with known values, and claims that come out of rows."""

import numpy as np
import pytest
import torch
from experiments.checks import check_comes_from_rows, check_continues

import swallowtail as st
from swallowtail.experiments.claims import counting as _counting
from swallowtail.experiments.claims import figure as claims
from swallowtail.experiments.claims.counting import Counted, Network, Tally
from swallowtail.experiments.claims.fits import inverse_rows, probe_rows, spectrum
from swallowtail.experiments.claims.haar import dense, haar_rows, interaction_rows, statistics
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs

TINY = claims.Config(1, 2, (1, 4), (4,), (0.002, 0.008), (0.1, 1.0), (1, 2), 3, (4,), 8, 2, (8, 9))


@pytest.fixture
def four():
    angles = torch.tensor([0.3, -1.2, 2.0, 0.7], dtype=torch.float64)
    eigenvalues = torch.tensor([1.0, 0.5, 2.0, -0.3], dtype=torch.float64)
    return st.SymmetricOperator(st.Rotation(st.Butterfly(4), angles), eigenvalues)


def network(operator):
    return Network(operator.rotation.wiring, operator.rotation.angles.numpy(), operator.eigenvalues.numpy())


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(claims, TINY, tmp_path / "rows.csv")
    check_comes_from_rows(claims, rows, "angle", "value")


def test_a_counted_number_counts():
    tally = Tally()
    x = Counted(3.0, tally)
    assert float(2.0 * x + x * x - 1.0 + np.float64(2.0) * x) == 20.0
    assert (tally.multiplications, tally.additions) == (3, 3)


def test_counts_for_n_4_by_hand(four):
    """Four rotations: 4 products each there and 4 back, 4 for D; a gradient three times that; half, and 8, for xᵀHx."""
    assert _counting.count_network(four, "product") == 4 * 4 + 4 + 4 * 4
    assert _counting.count_network(four, "quadratic_form") == 4 * 4 + 8
    assert _counting.count_network(four, "gradient") == 3 * 36
    x = np.array([1.0, -2.0, 0.5, 3.0])
    count, y = _counting.count_fast(four, x)
    assert count == 2 * 4 + 4 + 2 * 4 == four.multiply_adds
    np.testing.assert_allclose(y, four.to_dense().numpy() @ x, atol=1e-13)
    count, q = _counting.count_fast(four, x, quadratic=True)
    assert count == 2 * 4 + 8
    assert float(q) == pytest.approx(x @ four.to_dense().numpy() @ x)


def test_the_counted_network_is_the_operator(four):
    x, y = np.array([1.0, -2.0, 0.5, 3.0]), np.array([0.1, 0.2, -0.3, 0.4])
    H = four.to_dense().numpy()
    np.testing.assert_allclose(network(four).product(list(x)), H @ x, atol=1e-13)
    assert network(four).quadratic_form(list(x)) == pytest.approx(x @ H @ x)
    blocks, by_d = network(four).gradient(list(x), list(y))
    # The gradient by D from the formula: d‖QDQᵀx − y‖²/dD_i = 2 (Qᵀr)_i (Qᵀx)_i.
    Q = four.rotation.to_dense().numpy()
    np.testing.assert_allclose(by_d, 2 * (Q.T @ (H @ x - y)) * (Q.T @ x), atol=1e-12)
    gradient, other_d, z, u = np.empty((4, 4)), np.empty(4), np.empty((4, 1)), np.empty((4, 1))
    theta = four.rotation.angles.numpy()
    arguments = (unsigned_pairs(four.rotation.wiring), np.cos(theta), np.sin(theta), four.eigenvalues.numpy())
    for function in (extended_gradient, _counting.interpreted(extended_gradient)):
        function(*arguments, x[:, None].copy(), y[:, None], False, gradient, other_d, z, u)
        np.testing.assert_allclose(np.array(blocks).reshape(4, 4), gradient, atol=1e-12)
        np.testing.assert_allclose(by_d, other_d, atol=1e-12)


@pytest.mark.parametrize("n", [4, 16])
def test_count_rows_agree_with_the_paper(n):
    rows = {row["quantity"]: row for row in claims.count_rows(n, 0)}
    for row in rows.values():
        assert row["plain"] == row["paper"] or row["paper"] is None
        assert row["deviation"] < 1e-12
    assert rows["product"]["ours"] == rows["product"]["claimed_by_operator"]
    kept = rows["numbers kept for backward"]
    assert kept["ours"] == st.Butterfly(n).n_rotations + 2 * n < kept["plain"]


def test_statistics_of_known_matrices():
    assert statistics(np.eye(8))["fourth_moment"] == pytest.approx(8.0)
    assert statistics(st.Rotation.hadamard(8, dtype=torch.float64).to_dense().numpy())[
        "largest_entry"
    ] == pytest.approx(1.0)
    rows = haar_rows(16, (1,), 300, 7)
    fourth = {row["depth"]: row["value"] for row in rows if row["statistic"] == "fourth_moment"}
    assert fourth[1] == pytest.approx(16**2 * (3 / 8) ** 4, rel=0.06)
    assert fourth["uniform"] == pytest.approx(3 * 16 / 18, rel=0.02)


def test_interactions_are_non_zeros():
    rows = {(row["n"], row["depth"]): row for row in interaction_rows((8, 9))}
    assert rows[8, 1]["share"] == 1.0
    assert rows[9, 1]["fewest"] == 2
    assert rows[9, 1]["share"] == pytest.approx(np.count_nonzero(dense(9, 1, 3)) / 81)


@pytest.mark.parametrize(
    ("kind", "dimension", "distinct"), [("equal", 4, 4), ("equal", 1, 16), ("one", 12, 5)]
)
def test_spectra_have_one_mean_and_variance(kind, dimension, distinct):
    values = spectrum(16, kind, dimension)
    assert (values.mean(), values.std()) == pytest.approx((1.0, 0.5))
    assert len(np.unique(values.round(9))) == distinct


def test_a_fit_aimed_at_the_inverse_is_nearer_to_it():
    angles = {row["method"]: row["angle"] for row in inverse_rows(16, 16, 0.01, 1)}
    assert angles['target="inverse"'] < angles["inverting D"]
    assert angles["D fitted to the inverse"] < angles["inverting D"] + 1


def test_probes_from_a_region_help_there_only():
    angles = {(r["trained"], r["tested"]): r["angle"] for r in probe_rows(32, 3, 10, 1)}
    assert angles["region", "region"] < angles["sphere", "region"] - 3
    assert angles["region", "sphere"] > angles["sphere", "sphere"] + 3


def test_epochs_to_converge_take_the_best_rate():
    curves = {(0.1, 1.0): (40, 39, 30), (0.2, 1.0): (35, 30.5, 30), (0.1, 0.1): (40, 38, 36)}
    rows = [
        {"part": "rates", "seed": 0, "rate": rate, "factor": factor, "epoch": k + 1, "angle": a}
        for (rate, factor), angles in curves.items()
        for k, a in enumerate(angles)
    ]
    assert claims._best_rate(rows, 1.0) == 0.2
    assert claims._epochs_to_converge(rows, 1.0) == 2
    assert claims._epochs_to_converge(rows, 0.1) == 4  # never within three
