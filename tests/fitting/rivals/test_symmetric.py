"""The rivals of a fit: honest counts, at equal budgets."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import swallowtail as st
from swallowtail.fitting.budget import Prices
from swallowtail.fitting.methods.low_rank import diagonal_low_rank
from swallowtail.fitting.rivals import Judged, Measure, cost_of, dense_rivals, low_rank
from swallowtail.fitting.timing import time_model


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return (A + A.T) / 2


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_dense_rivals_are_counted_honestly(n):
    H = symmetric(n) + n * np.eye(n)
    result = st.fit_symmetric(H, wiring="pairs")
    judged = Judged(Prices(n, time_model("cpu", torch.float64)))
    measure, others = Measure(H, seed=1), {"other, as fitted": result.operator}
    found = dense_rivals(measure, result.operator, result.angle, judged, others, sp.csr_array(H))
    budgets = {budget for rival in found for budget in rival.equal.split(", ") if budget}
    assert budgets == {"bytes", "floats", "multiply-adds", "time"}
    by_name = {rival.name: rival for rival in found}
    assert by_name["dense"].multiply_adds == n * n
    assert by_name["the sparse matrix itself (CSR)"].floats == np.count_nonzero(H)
    assert by_name["other, as fitted"].angle == pytest.approx(st.error_angle(H, result.operator, 1000, 1))
    for rival in found:
        if rival.name.startswith("c·I"):
            r = int(rival.name.split()[-1])
            assert rival.floats == r * (n + 1) + 1
            assert rival.multiply_adds == (2 * r + 1) * n
            assert rival.bytes == 4 * rival.floats
            cut = low_rank(H, [r])[r] @ np.eye(n)
            assert rival.relative_error == pytest.approx(
                np.linalg.norm(H - cut) / np.linalg.norm(H), abs=1e-9
            )


def test_beside_a_quick_fit_a_rival_that_could_win_is_fitted_well():
    """Its first few turns leave 4 to 6 % of the error of a diagonal + low rank here."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 80)) * np.exp(rng.standard_normal((40, 1)))
    H = X @ X.T / 40
    result = st.fit_symmetric(H, effort="quick")
    ranks = {rival: int(rival.name.split()[-1]) for rival in result.rivals if "diagonal" in rival.name}
    close = {rival: r for rival, r in ranks.items() if r and rival.angle < 2.5 * result.angle}
    assert close
    for rival, r in close.items():
        rest = H - diagonal_low_rank(H, r) @ np.eye(40)
        assert rival.relative_error <= 1.02 * np.linalg.norm(rest) / np.linalg.norm(H)


def test_within_a_budget_no_rival_costs_more():
    H = st.random_symmetric(64, 5, 0)
    operator = st.SymmetricOperator(st.Rotation.random(64, seed=0, dtype=torch.float64), np.ones(64))
    prices = Prices(64, time_model())
    for unit, amount in (("floats", 256), ("bytes", 1000), ("multiply_adds", 900), ("time", 60e-6)):
        judged = Judged(prices, "matrix", unit, amount)
        found = dense_rivals(Measure(H, seed=1), operator, 90.0, judged, {})
        name = unit.replace("_", "-")
        here = [rival for rival in found if name in rival.equal.split(", ")]
        assert here
        for rival in here:
            spent = getattr(rival, unit)
            assert spent <= amount, (rival.name, spent)


def test_the_time_of_a_fit_is_that_of_its_parts():
    prices = Prices(64, time_model())
    operator = st.SymmetricOperator(st.Rotation.random(64, seed=0), np.ones(64))
    assert cost_of(operator).time is None
    assert cost_of(operator, prices).time == prices.model.seconds(64, "butterfly", 192)
