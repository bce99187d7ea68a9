"""The rivals of a fit: honest counts, at equal budgets."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import swallowtail as st
from swallowtail.fitting.budget import Prices
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
    found = dense_rivals(
        Measure(H, seed=1), result.operator, judged, {"other, as fitted": result.operator}, sp.csr_array(H)
    )
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


def test_within_a_budget_no_rival_costs_more():
    H = st.random_symmetric(64, 5, 0)
    operator = st.SymmetricOperator(st.Rotation.random(64, seed=0, dtype=torch.float64), np.ones(64))
    prices = Prices(64, time_model())
    for unit, amount in (("floats", 256), ("bytes", 1000), ("multiply_adds", 900), ("time", 60e-6)):
        found = dense_rivals(Measure(H, seed=1), operator, Judged(prices, "matrix", unit, amount), {})
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
