"""Targets and forms of a symmetric matrix."""

import numpy as np
import pytest
import torch

import swallowtail as st
from swallowtail.fitting import fit_symmetric
from swallowtail.metrics import error_angle

N = 12


H = st.random_symmetric(N, 3, 0)


def test_inverse_target_is_better_at_the_inverse():
    A = st.random_symmetric(64, 64, 5) + 0.01 * np.eye(64)
    exact = np.linalg.inv(A)
    plain, aimed = (fit_symmetric(A, target=target, wiring="pairs") for target in ("matrix", "inverse"))
    angles = [error_angle(exact, result.operator.inverse(), seed=1) for result in (plain, aimed)]
    assert angles[1] < 0.9 * angles[0]
    assert aimed.angle == pytest.approx(angles[1], abs=0.5)
    assert aimed.target == "inverse"
    assert "those of H⁻¹" in aimed.message
    assert aimed.angle_of == "H⁻¹"
    assert "angle of H⁻¹ " in str(aimed)
    assert "angle of H " in str(plain)


def test_likelihood_target_is_better_in_likelihood():
    A = st.random_symmetric(64, 5, 5) + 0.001 * np.eye(64)
    plain, aimed = (fit_symmetric(A, target=target, wiring="pairs") for target in ("matrix", "likelihood"))
    assert float(aimed.operator.logdet()) < float(plain.operator.logdet())
    assert aimed.target == "likelihood"


@pytest.mark.parametrize("depth", [1, 2])
def test_butterfly_wiring(depth):
    for wiring in ("butterfly", st.Butterfly(N, depth)):
        result = fit_symmetric(H, wiring=wiring, depth=depth)
        assert result.operator.rotation.wiring == st.Butterfly(N, depth)
        assert result.method in ("butterfly", "recovery")


def test_a_matrix_in_the_class_is_recovered():
    Q = st.Rotation.random(32, seed=3).to(dtype=torch.float64)
    A = st.SymmetricOperator(Q, torch.linspace(-1, 2, 32, dtype=torch.float64)).to_dense().numpy()
    result = fit_symmetric((A + A.T) / 2)
    assert (result.method, result.status) == ("recovery", "exact")
    assert result.relative_error < 1e-6


@pytest.mark.parametrize("H", [np.diag(np.arange(-5.0, 32)), 3 * np.eye(20), np.zeros((6, 6))])
@pytest.mark.parametrize("arguments", [{}, {"effort": "quick"}, {"budget": "floats"}, {"depth": 2}])
def test_a_diagonal_takes_no_rotations(H, arguments):
    result = fit_symmetric(H, **arguments)
    assert result.operator.rotation.n_rotations == 0
    assert result.floats <= len(H)
    np.testing.assert_array_equal(np.asarray(result.operator), H)
    assert "Lost" not in result.message
    assert f"({result.floats}) with" in result.message  # the rival is as cheap


def test_auto_is_the_better_of_its_forms():
    kernel = np.exp(-np.abs(np.subtract.outer(np.arange(32), np.arange(32))) / 8.0)
    best = fit_symmetric(kernel)
    alone = [fit_symmetric(kernel, wiring=wiring).relative_error for wiring in ("butterfly", "pairs")]
    assert best.relative_error <= min(alone) * 1.02
    assert any("as fitted" in rival.name for rival in best.rivals)


@pytest.mark.parametrize("angle", [20.0, 8.0])
def test_target_angle_takes_as_few_rotations_as_it_needs(angle):
    A = st.random_symmetric(64, 5, 3)
    result = fit_symmetric(A, target_angle=angle)
    assert result.angle <= angle
    assert result.angle > 0.6 * angle
    fewer = fit_symmetric(A, wiring="pairs", n_rotations=int(0.6 * result.operator.rotation.n_rotations))
    assert fewer.angle > angle


def test_target_angle_out_of_reach_says_so():
    result = fit_symmetric(H, target_angle=1.0, n_rotations=3)
    assert result.status == "budget"
    assert "1.0° was not reached" in result.message


@pytest.mark.parametrize(
    "wiring",
    [st.Butterfly(16, reverse=True), st.Butterfly(16, 2, reverse=True), st.Butterfly(12, reverse=True)],
    ids=str,
)
def test_the_butterfly_that_is_given_is_the_one_used(wiring):
    A = st.random_symmetric(wiring.n, 3, 0)
    assert fit_symmetric(A, wiring=wiring).operator.rotation.wiring == wiring
    Q = st.Rotation(wiring, torch.linspace(-1, 1, wiring.n_rotations, dtype=torch.float64))
    A = st.SymmetricOperator(Q, torch.arange(wiring.n, dtype=torch.float64)).to_dense().numpy()
    result = fit_symmetric((A + A.T) / 2, wiring=wiring)
    assert result.operator.rotation.wiring == wiring
    if wiring == st.Butterfly(16, reverse=True):
        assert (result.method, result.status) == ("recovery", "exact")


def test_algorithm_1_takes_any_wiring():
    wiring = st.Pairs(N, [[(0, 1), (2, 3)], [(1, 2)]])
    result = fit_symmetric(H, method="sgd", wiring=wiring, epochs=1)
    assert result.operator.rotation.wiring == wiring


def test_a_grouped_wiring_is_the_same_fit_in_rounds_of_groups():
    A = st.random_symmetric(48, 6, 2)
    free, grouped = (fit_symmetric(A, wiring=wiring) for wiring in ("pairs", "grouped"))
    assert isinstance(grouped.operator.rotation.wiring, st.Grouped)
    assert grouped.operator.rotation.wiring.size <= 16
    assert grouped.angle == pytest.approx(free.angle, rel=1e-9)
    assert np.allclose(grouped.operator.to_dense(), free.operator.to_dense(), atol=1e-12)


def test_grouped_is_a_method_with_options():
    A = st.random_symmetric(40, 6, 2)
    result = fit_symmetric(A, method="grouped", size=8, n_rounds=5, cycles=4)
    wiring = result.operator.rotation.wiring
    assert (result.method, type(wiring)) == ("grouped", st.Grouped)
    assert wiring.size <= 8
    few = fit_symmetric(A, method="grouped", target_angle=25.0)
    assert few.angle <= 25.0
    assert few.operator.rotation.n_rotations < wiring.n_rotations


def test_effort_buys_accuracy():
    A = st.random_symmetric(64, 32, 8)
    quick, default, best = (fit_symmetric(A, effort=effort) for effort in ("quick", "default", "best"))
    assert best.angle < 0.99 * default.angle
    assert default.angle < quick.angle < 1.15 * default.angle
    kinds = {rival.name.split()[0] for rival in quick.rivals}
    assert kinds == {"c·I", "diagonal", "dense"}
    assert quick.message.endswith("With effort='quick', only forms of low rank were compared.")
    assert quick.message == fit_symmetric(A, effort="quick").message
