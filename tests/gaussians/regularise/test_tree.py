"""Chow and Liu's tree."""

import numpy as np

from swallowtail.gaussians.regularise.tree import tree_precision


def test_a_chain_is_found_in_any_order_of_its_columns():
    i = np.arange(9)
    S = 0.7 ** np.abs(i[:, None] - i) * np.outer(i + 1, i + 1)
    order = np.random.default_rng(0).permutation(9)
    P = tree_precision(S[np.ix_(order, order)], 1e12)
    np.testing.assert_allclose(P, np.linalg.inv(S[np.ix_(order, order)]), atol=1e-9)


def test_equal_columns_and_unlike_ones_give_a_positive_matrix():
    S = np.ones((4, 4))
    S[3, :3] = S[:3, 3] = 0.0
    assert np.linalg.eigvalsh(tree_precision(S, 5)).min() > 0
    np.testing.assert_allclose(tree_precision(np.diag([1.0, 4.0]), 5), np.diag([1.0, 0.25]))
    np.testing.assert_allclose(tree_precision(np.eye(1), 5), np.eye(1))
