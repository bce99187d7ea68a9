"""The plain rivals: the best c·I + low rank against brute force, honest counts, honest words."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

import swallowtail as st
from swallowtail import random_orthogonal
from swallowtail.fitting import rivals
from swallowtail.fitting.core.completion import complete, probe
from swallowtail.fitting.result import Rival
from swallowtail.fitting.rivals import (
    dense_rivals,
    equal_ranks,
    factor_rivals,
    low_rank,
    low_rank_rotation,
    verdict,
)


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return (A + A.T) / 2


def brute_force(H, r):
    """The least ‖H − cI − rank r‖_F: r eigenvalues are taken away, c is the mean of the others."""
    values = np.linalg.eigvalsh(H)
    left = [np.delete(values, taken) for taken in combinations(range(len(values)), r)]
    return min(float(np.sum((rest - rest.mean()) ** 2)) if len(rest) else 0.0 for rest in left) ** 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shift", [0.0, 5.0, -5.0])
def test_low_rank_is_the_best_there_is(seed, shift):
    H = symmetric(7, seed) + shift * np.eye(7)
    for r, cut in low_rank(H, list(range(8))).items():
        assert cut.V.shape == (7, r)
        np.testing.assert_allclose(cut.V.T @ cut.V, np.eye(r), atol=1e-12)
        assert np.linalg.norm(H - cut @ np.eye(7)) == pytest.approx(brute_force(H, r), abs=1e-12)


@pytest.mark.parametrize("H", [np.zeros((4, 4)), np.eye(4), np.array([[3.0]]), np.ones((4, 4))])
def test_low_rank_of_simple_matrices(H):
    for r, cut in low_rank(H, list(range(len(H) + 1))).items():
        if r or H[0, -1] == 0 or len(H) == 1:
            np.testing.assert_allclose(cut @ np.eye(len(H)), H, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_scale_is_no_matter(scale):
    H = symmetric(9)
    for r in (0, 2, 5):
        plain, scaled = low_rank(H, [r])[r], low_rank(H * scale, [r])[r]
        np.testing.assert_allclose(scaled @ np.eye(9) / scale, plain @ np.eye(9), atol=1e-12)


@pytest.mark.parametrize("definite", [True, False])
def test_few_extremes_are_found_without_all_eigenvectors(definite, monkeypatch):
    monkeypatch.setattr(rivals, "FULL_EIGH", 10)
    generator = np.random.default_rng(0)
    Q = np.linalg.qr(generator.standard_normal((60, 60)))[0]
    values = np.concatenate(
        [[9.0, 7.0, 5.0 if definite else -5.0], 1.0 + 0.1 * generator.standard_normal(57)]
    )
    H = (Q * values) @ Q.T
    for r, cut in low_rank((H + H.T) / 2, [0, 2, 3]).items():
        best = rivals._cut(*np.linalg.eigh(H), r)
        error = np.linalg.norm(H - cut @ np.eye(60))
        assert error == pytest.approx(np.linalg.norm(H - best @ np.eye(60)), rel=1e-6)


def test_ranks_are_the_nearest():
    operator = st.SymmetricOperator(st.Rotation.random(64, seed=0), np.ones(64))
    ranks = equal_ranks(operator)
    assert ranks["floats"] == ranks["bytes"] == 4  # 261 floats beside 256
    assert ranks["multiply-adds"] == round((operator.multiply_adds - 64) / 128)
    tiny = st.SymmetricOperator(st.Rotation.identity(1), np.ones(1))
    assert set(equal_ranks(tiny).values()) <= {0, 1}


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_dense_rivals_are_counted_honestly(n):
    H = symmetric(n) + n * np.eye(n)
    result = st.fit_symmetric(H, wiring="pairs")
    found = dense_rivals(H, result.operator, 1, {"other, as fitted": result.operator}, sp.csr_array(H))
    budgets = [budget for rival in found for budget in rival.equal.split(", ") if budget]
    assert sorted(budgets) == ["bytes", "floats", "multiply-adds", "time"]
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


def test_rivals_from_products_are_cut_from_the_same_completion():
    H = st.random_symmetric(64, 5, 0)
    completion = complete(probe(lambda X: H @ X, 64, 16))
    operator = st.fit_symmetric(H, wiring="pairs").operator
    found = factor_rivals(completion, operator)
    assert {budget for rival in found for budget in rival.equal.split(", ")} == {
        "floats",
        "bytes",
        "multiply-adds",
    }
    for rival in found:
        r = (rival.floats - 1) // 65
        assert rival.name == f"c·I + rank {r}, same products"
        np.testing.assert_allclose(rival.operator @ np.eye(64), completion.factor.cut(r).dense(), atol=1e-12)


def rival(angle, equal, name="c·I + rank 3", work=10):
    return Rival(name, angle, 0.1, 10, 40, work, equal)


def test_verdicts():
    assert verdict(5.0, [rival(9.0, "floats"), rival(7.0, "bytes, time")]) == (
        "Better, at 5.0°, than c·I + low rank at equal floats, bytes, time."
    )
    assert "wins at equal bytes: c·I + rank 6 reaches 3.0°" in verdict(
        5.0, [rival(9.0, "floats"), rival(3.0, "bytes", "c·I + rank 6")]
    )
    assert "wins at every equal budget" in verdict(5.0, [rival(4.0, "floats"), rival(3.0, "bytes")])
    assert verdict(5.0, [rival(5.0, "floats"), rival(9.0, "bytes")]).startswith("No better than c·I + rank 3")
    assert "Better" in verdict(5.0, [rival(9.0, "floats"), rival(1.0, "", "butterfly, as fitted")])
    sparse = rival(0.0, "", "the sparse matrix itself (CSR)", 77)
    assert verdict(5.0, [rival(9.0, "floats"), sparse]).endswith("exact with 77 multiply-adds.")


def test_low_rank_rival_of_a_rotation_is_the_best():
    R = random_orthogonal(12, 0)
    for r, form in low_rank_rotation(R, [0, 1, 3, 12]).items():
        error = np.linalg.norm(R - form @ np.eye(12))
        for c in np.linspace(-1, 1, 41):
            rest = np.linalg.svd(R - c * np.eye(12), compute_uv=False)[r:]
            assert error <= np.linalg.norm(rest) + 1e-9
