"""What a result says of itself and of its rivals."""

import numpy as np

import swallowtail as st
from swallowtail import fit_rotation, random_orthogonal
from swallowtail.fitting import fit_symmetric


def test_a_simpler_form_that_wins_is_named():
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 3)))[0]
    A = 0.2 * np.eye(64) + V @ np.diag([3.0, 2.0, 1.0]) @ V.T
    result = fit_symmetric(A, n_rotations=120)  # 186 would be exact
    assert "Something simpler wins" in result.message
    winner = min(
        (rival for rival in result.rivals if rival.name.startswith("c·I")), key=lambda rival: rival.angle
    )
    assert winner.angle < 1e-3 < result.angle
    assert winner.name in result.message
    products = fit_symmetric(lambda X: A @ X, 64, n_rotations=120, max_products=24)
    assert "Something simpler wins" in products.message


def test_a_tie_is_called_a_tie():
    result = fit_symmetric(2.0 * np.eye(8))
    assert result.message.startswith("No better than")


def test_a_fit_that_wins_says_so():
    A = st.random_symmetric(256, 128, 3)
    result = fit_symmetric(A, wiring="pairs")
    ranked = [rival for rival in result.rivals if {"floats", "multiply-adds"} & set(rival.equal.split(", "))]
    assert ranked
    assert all(rival.angle > result.angle for rival in ranked)
    assert "at equal floats" not in result.message or "Better" in result.message


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
    assert "Something simpler wins" in result.message
    small = fit_rotation(random_orthogonal(6, 0), n_rotations=20)
    assert "The dense matrix costs no more" in small.message
