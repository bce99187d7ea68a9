"""Rotations with rank-one terms: what they reach, what they cost, what is refused."""

import numpy as np
import pytest

from swallowtail import error_angle, fit_symmetric, random_symmetric
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.hybrid import HybridPlan, fit_hybrid, scouted_ranks
from swallowtail.operators import HybridOperator, SymmetricOperator


def dense(fit):
    D = SymmetricOperator(_rotation(fit.rotations), fit.rotations.eigenvalues).to_dense().numpy()
    return D + (fit.basis * fit.weights) @ fit.basis.T


def _rotation(fit):
    from swallowtail import Rotation

    return Rotation(fit.wiring, fit.angles)


def test_history_ends_at_the_error_of_the_result():
    H = random_symmetric(24, 3, 1)
    fit = fit_hybrid(H, HybridPlan.of_equal_work(24, 60), rank=2)[0]
    error = np.linalg.norm(H - dense(fit)) / np.linalg.norm(H)
    assert fit.history[-1][2] == pytest.approx(error**2, rel=1e-9)
    assert len(fit.rotations.angles) <= 60 - 2 * 12


def test_a_sum_of_both_kinds_is_found():
    """A few rotations of a diagonal and one strong direction: neither form alone has it."""
    generator = np.random.default_rng(3)
    u = generator.standard_normal(16)
    H = np.diag(generator.uniform(1.0, 2.0, 16)) + 5.0 * np.outer(u, u) / (u @ u)
    fit = fit_hybrid(H, HybridPlan.of_equal_work(16, 16), rank=1)[0]
    assert np.linalg.norm(H - dense(fit)) < 1e-2 * np.linalg.norm(H)


def test_few_strong_directions_are_met_better_than_by_rotations_alone_at_the_same_work():
    H = random_symmetric(64, 5, 13)
    hybrid, pairs = fit_symmetric(H, method="hybrid"), fit_symmetric(H, method="pairs")
    assert isinstance(hybrid.operator, HybridOperator)
    assert hybrid.operator.multiply_adds <= pairs.operator.multiply_adds
    assert error_angle(H, hybrid.operator) < error_angle(H, pairs.operator) - 1.0
    assert "hybrid" in str(hybrid)
    assert hybrid.floats == hybrid.operator.rotation.n_rotations + 64 + 65 * hybrid.operator.rank


def test_rotations_alone_are_kept_where_terms_do_not_pay():
    result = fit_symmetric(random_symmetric(32, 16, 4), method="hybrid")
    assert result.method == "pairs"
    assert isinstance(result.operator, SymmetricOperator)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(scale):
    H = random_symmetric(16, 2, 0)
    plan = HybridPlan.of_equal_work(16, 24)
    fit = fit_hybrid(H * scale, plan, rank=1)[0]
    assert fit.value == pytest.approx(fit_hybrid(H, plan, rank=1)[0].value, rel=0.05)


def test_interrupted_it_keeps_the_best_so_far():
    calls = []

    def callback(stage, n_rotations, objective):
        calls.append(stage)
        if len(calls) > 3:
            raise Stop

    fit = fit_hybrid(random_symmetric(32, 4, 0), HybridPlan.of_equal_work(32, 80), callback=callback)[0]
    assert len(calls) < 10
    assert fit.value < 1.0


def test_members_without_rotations_are_always_there():
    H = random_symmetric(24, 3, 1)
    members = fit_hybrid(H, HybridPlan(3, (40, 15)))
    values = [member.value for member in members]
    assert values == sorted(values)
    plain = [member for member in members if not len(member.rotations.angles)]
    assert {len(member.weights) for member in plain} == {1, 3}
    multiple = next(member for member in plain if len(member.weights) == 3)
    assert np.ptp(multiple.rotations.eigenvalues) == 0.0
    for member in members:
        if len(member.rotations.angles):
            assert len(member.rotations.angles) <= (40, 15)[len(member.weights)]


def test_few_ranks_are_tried_where_n_is_large():
    assert scouted_ranks(100, 6) == [0, 1, 2, 3, 4, 5, 6]
    assert scouted_ranks(784, 40) == [0, 1, 2, 3, 4, 6, 9, 13, 19, 28, 40]
    assert scouted_ranks(784, 0) == [0]


def test_what_makes_no_sense_is_refused():
    H = random_symmetric(8, 2, 0)
    with pytest.raises(ValueError, match="rank: expected at most 3"):
        fit_hybrid(H, HybridPlan.of_equal_work(8, 12), rank=4)
    with pytest.raises(ValueError, match="expected the entries of H and target='matrix' for method='hybrid'"):
        fit_symmetric(lambda X: H @ X, 8, method="hybrid", max_products=4)
    with pytest.raises(ValueError, match="expected the entries of H and target='matrix' for method='hybrid'"):
        fit_symmetric(H, method="hybrid", target="inverse")
