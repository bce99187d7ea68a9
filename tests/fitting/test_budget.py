"""How much a fit uses, in rotations and in the user's own unit."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import swallowtail as st
from swallowtail.fitting import fit_symmetric
from swallowtail.fitting.budget import UNITS, Budget, Prices, default_budget, largest_budget
from swallowtail.fitting.rivals import cost_of
from swallowtail.fitting.timing import time_model

N = 12


H = st.random_symmetric(N, 3, 0)


def test_budget_is_kept():
    for K in (0, 1, 17, 40):
        assert fit_symmetric(H, n_rotations=K).operator.rotation.n_rotations <= K
    assert fit_symmetric(H).operator.rotation.n_rotations <= default_budget(N) == 24
    assert default_budget(64, 2) == 384


def test_a_huge_budget_ends():
    result = fit_symmetric(H, n_rotations=10**6)
    assert result.status == "exact"
    assert result.operator.rotation.n_rotations < 2000


def test_a_huge_budget_takes_little_memory():
    code = """
        import resource
        from swallowtail import fit_rotation, fit_symmetric, random_orthogonal, random_symmetric
        H, R = random_symmetric(12, 3, 0), random_orthogonal(12, 0)
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # MiB
        fit_symmetric(H), fit_rotation(R), fit_symmetric(lambda X: H @ X, 12, max_products=6)
        before = peak()
        results = [
            fit_symmetric(H, n_rotations=10**8),
            fit_symmetric(H, n_rotations=10**8, method="pairs", cycles=2),
            fit_symmetric(H, n_rotations=10**8, method="hybrid"),
            fit_symmetric(lambda X: H @ X, 12, max_products=6, n_rotations=10**8),
            fit_rotation(R, n_rotations=10**8),
        ]
        print(peak() - before, *(getattr(r.operator, "rotation", r.operator).n_rotations for r in results))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=240
    )
    grown, *counts = map(int, found.stdout.split())
    assert grown < 100
    assert max(counts) <= largest_budget(12)


@pytest.mark.parametrize("unit", UNITS)
def test_a_plan_buys_as_much_as_the_amount_pays_for(unit):
    prices = Prices(100, time_model())
    amount, plan = Budget(unit).plan(prices, 350)
    assert plan.rotations[0] >= 350
    assert prices.multiple(plan.multiple).of(unit) <= amount < prices.multiple(plan.multiple + 1).of(unit)
    for r, K in enumerate(plan.rotations):
        assert prices.rotations(K, r).of(unit) <= amount < prices.rotations(K + 1, r).of(unit)
    assert prices.rotations(0, len(plan.rotations)).of(unit) > amount


@pytest.mark.parametrize("unit", UNITS)
def test_a_fit_keeps_to_its_budget(unit):
    n = 120 if unit == "time" else 40  # up to n ≈ 60 a dense product takes no longer than 100 rotations
    A = st.random_symmetric(n, 4, 1)
    prices = Prices(n, time_model("cpu"))
    amount = prices.rotations(100).of(unit)
    result = fit_symmetric(A.astype(np.float32), budget=(unit, amount), symmetrize=True)
    assert cost_of(result.operator, prices).of(unit) <= amount
    plain = [rival for rival in result.rivals if rival.name.startswith(("c·I", "diagonal"))]
    here = [rival for rival in plain if unit.replace("_", "-") in rival.equal.split(", ")]
    assert here
    assert all(result.angle <= rival.angle * 1.02 for rival in here)


def test_factor_models_need_no_rotations():
    generator = np.random.default_rng(4)
    F = generator.standard_normal((50, 3))
    A = F @ F.T + np.diag(generator.uniform(1.0, 3.0, 50))
    C = 2.0 * np.eye(50) + F @ F.T
    for budget in ("multiply_adds", ("floats", 3 * 51 + 50), ("bytes", 4000)):  # it pays for up to 18 factors
        result = fit_symmetric(A, budget=budget)
        assert result.angle < 1e-6
        assert result.operator.rotation.n_rotations == 0
        assert result.status == "exact"
        assert result.floats == 50 + 51 * 3  # no terms that trade with the diagonal
        multiple = fit_symmetric(C, budget=budget)
        assert multiple.angle < 1e-6
        assert multiple.floats == 154


def test_other_targets_have_budgets_too():
    generator = np.random.default_rng(4)
    F = generator.standard_normal((30, 2))
    A = F @ F.T + np.diag(generator.uniform(1.0, 3.0, 30))
    inverse = fit_symmetric(A, budget="multiply_adds", target="inverse")
    assert inverse.angle < 1e-6
    np.testing.assert_allclose(inverse.operator.to_dense().numpy(), A, atol=1e-8)
    likely = fit_symmetric(A, budget="multiply_adds", target="likelihood")
    assert likely.operator.rotation.n_rotations == 0
    assert likely.score == pytest.approx(np.linalg.slogdet(2 * np.pi * A)[1] / 60 + 0.5, abs=1e-3)


def test_from_products_the_budget_buys_rotations():
    A = st.random_symmetric(40, 4, 1)
    result = fit_symmetric(lambda X: A @ X, 40, budget=("floats", 120), max_products=20)
    assert result.floats <= 120
    B = 2.0 * np.eye(40) + np.outer(A[0], A[0])
    exact = fit_symmetric(lambda X: B @ X, 40, budget=("floats", 83), max_products=20)
    assert exact.operator.rotation.n_rotations == 0
    assert exact.floats <= 83
    assert exact.angle < 1e-4


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ("flops", "expected one of 'floats', 'bytes', 'multiply_adds', 'time'"),
        (120, r"a tuple of it and an amount, got 120; try `budget=\('floats', 120\)`"),
        (True, "got True; try `budget='floats'`"),
        (("floats", -1), "expected a number > 0"),
        (("floats", 100.5), "a whole number of floats"),
        (
            ("floats", 11),
            r"at least 12 floats, those of a diagonal of n = 12 numbers, got 11; try `budget=\('floats', 12\)`",
        ),
        (("bytes", 40), "at least 48 bytes"),
        (("multiply_adds", 3), "at least 12 multiply-adds"),
        (("time", 1e-9), "which a product with a diagonal of n = 12 numbers takes"),
    ],
)
def test_budgets_that_make_no_sense(budget, match):
    with pytest.raises(st.ArgumentError, match=match):
        fit_symmetric(H, budget=budget)


@pytest.mark.parametrize(
    "more", [{"n_rotations": 5}, {"target_angle": 5.0}, {"method": "butterfly"}, {"wiring": "butterfly"}]
)
def test_a_budget_goes_with_few_others(more):
    with pytest.raises(st.ArgumentError):
        fit_symmetric(H, budget="floats", **more)
