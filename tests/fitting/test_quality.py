"""What a result says of itself and of its rivals."""

import numpy as np
import pytest

import swallowtail as st
from swallowtail import fit_rotation, random_orthogonal
from swallowtail.fitting import fit_symmetric


def test_a_simpler_form_that_wins_is_named():
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 3)))[0]
    A = 0.2 * np.eye(64) + V @ np.diag([3.0, 2.0, 1.0]) @ V.T
    result = fit_symmetric(A, n_rotations=120)  # 186 would be exact
    assert "Lost at equal" in result.message
    winner = min(
        (rival for rival in result.rivals if rival.name.startswith("c·I")), key=lambda rival: rival.angle
    )
    assert winner.angle < 1e-3 < result.angle
    assert winner.name in result.message
    products = fit_symmetric(lambda X: A @ X, 64, n_rotations=120, max_products=24)
    assert "Lost at equal floats" in products.message


def test_a_tie_is_called_a_tie():
    result = fit_symmetric(2.0 * np.eye(8))
    assert "Tied at equal floats" in result.message
    assert "Won" not in result.message


def test_no_fit_wins_where_the_matrix_is_sparser():
    L = np.diag(np.full(120, 2.0)) - np.eye(120, k=1) - np.eye(120, k=-1)
    order = np.random.default_rng(0).permutation(120)
    result = fit_symmetric(L[order][:, order])  # no band
    assert result.angle > 0.1
    for unit in ("floats", "bytes", "multiply-adds"):
        assert f"{unit} (" in result.message.partition("Lost at equal")[2]
    assert "to all 358 entries, 0.00°" in result.message


def test_a_fit_that_wins_says_so():
    A = st.random_symmetric(256, 128, 3)
    result = fit_symmetric(A, wiring="pairs")
    ranked = [rival for rival in result.rivals if {"floats", "multiply-adds"} & set(rival.equal.split(", "))]
    assert ranked
    assert all(rival.angle > result.angle for rival in ranked)
    assert "Won at equal floats" in result.message
    assert "multiply-adds" not in result.message.split("Lost")[-1] or "Lost" not in result.message


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_drawn_with_a_seed_near_the_fits_own_are_no_probes(seed):
    rows = np.random.default_rng(seed).standard_normal((300, 60))
    H = np.cov(rows.T)
    result = fit_symmetric(H, seed=0, effort="quick")
    elsewhere = st.error_angle(H, result.operator, n_probes=20000, seed=7)
    assert abs(result.angle - elsewhere) < 4 * result.angle_estimate.error


def test_the_same_call_gives_the_same_message():
    A = st.random_symmetric(64, 5, 3)
    first, second = (fit_symmetric(A, method="pairs", cycles=0) for _ in range(2))
    assert first.message == second.message
    assert first.rivals == second.rivals
    for budget in ("floats", "bytes", "multiply-adds", "time"):
        assert f"{budget} (" in first.message
    assert "256 vectors, " in first.message
    assert first.time_source in first.message
    assert first.time > 0


def test_the_likelihood_is_judged_by_nats():
    generator = np.random.default_rng(2)
    F = generator.standard_normal((20, 2))
    S = F @ F.T + np.diag(generator.uniform(0.5, 2.0, 20))
    result = fit_symmetric(S, target="likelihood", n_rotations=30)
    B = result.operator.to_dense().numpy()
    loss = np.linalg.slogdet(2 * np.pi * B)[1] + np.trace(np.linalg.solve(B, S))
    assert result.score == pytest.approx(loss / 40)
    assert " nats" in result.message
    exact = min(rival.score for rival in result.rivals)
    assert result.score > exact == pytest.approx(np.linalg.slogdet(2 * np.pi * S)[1] / 40 + 0.5)
    names = [rival.name for rival in result.rivals]
    assert not any("entries" in name or "band" in name for name in names)


def test_a_singular_covariance_has_no_density():
    S = np.diag([1.0, 2.0, 3.0, 0.0])  # a column that never changes
    S[0, 1] = S[1, 0] = 0.5
    result = fit_symmetric(S, target="likelihood")
    assert result.score == np.inf
    assert "H is singular; try H + epsilon·I, or GivensCovariance" in result.message
    assert "singular" not in fit_symmetric(S + np.eye(4), target="likelihood").message


def test_the_inverse_is_judged_on_the_inverse():
    A = st.random_symmetric(24, 5, 0) + 3 * np.eye(24)
    result = fit_symmetric(A, target="inverse")
    inverse = np.linalg.inv(A)
    by_name = {rival.name: rival for rival in result.rivals}
    rank = int(next(name for name in by_name if name.startswith("c·I")).split()[-1])
    cut = st.fitting.rivals.low_rank(inverse, [rank])[rank]
    assert by_name[f"c·I + rank {rank}"].angle == pytest.approx(st.error_angle(inverse, cut, 1000, 1))


def test_an_estimate_without_products_of_its_own_claims_no_interval():
    """On a flat spectrum few products say little, and what they say of themselves is too good."""
    A = np.cov(np.random.default_rng(0).standard_normal((40, 80)))
    for source in (lambda X: A @ X, (np.eye(40)[:, :12], A[:, :12])):
        result = fit_symmetric(source, None if isinstance(source, tuple) else 40, max_products=12)
        assert result.angle_estimate[1:] == (0.0, 180.0)
        assert "unconfirmed" in str(result)


def test_something_simpler_wins():
    v = np.random.default_rng(0).standard_normal(24)
    result = fit_rotation(np.eye(24) - 2 * np.outer(v, v) / (v @ v))
    assert result.rivals[0].relative_error < 1e-7
    assert "Lost at equal floats" in result.message
    small = fit_rotation(random_orthogonal(6, 0), n_rotations=20)
    assert "The dense matrix costs no more" in small.message
