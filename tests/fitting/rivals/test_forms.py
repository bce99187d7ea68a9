"""Alternatives, and the ranks that cost as much as a fit."""

import numpy as np

import swallowtail as st
from swallowtail.fitting.core.completion import complete, probe
from swallowtail.fitting.rivals import equal_ranks, factor_rivals


def test_ranks_are_the_nearest():
    operator = st.SymmetricOperator(st.Rotation.random(64, seed=0), np.ones(64))
    ranks = equal_ranks(operator)
    assert ranks["floats"] == ranks["bytes"] == 4  # 261 floats beside 256
    assert ranks["multiply-adds"] == round((operator.multiply_adds - 64) / 128)
    tiny = st.SymmetricOperator(st.Rotation.identity(1), np.ones(1))
    assert set(equal_ranks(tiny).values()) <= {0, 1}


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
        r = (rival.cost.floats - 1) // 65
        assert rival.name == f"c·I + rank {r}, same products"
        np.testing.assert_allclose(rival.operator @ np.eye(64), completion.factor.cut(r).dense(), atol=1e-12)
