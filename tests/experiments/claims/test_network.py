"""The counted network is the operator, and its numbers count."""

import numpy as np
import pytest

from swallowtail.experiments.claims.counting import interpreted
from swallowtail.experiments.claims.network import Counted, Network, Tally
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs


def network(operator):
    return Network(operator.rotation.wiring, operator.rotation.angles.numpy(), operator.eigenvalues.numpy())


def test_a_counted_number_counts():
    tally = Tally()
    x = Counted(3.0, tally)
    assert float(2.0 * x + x * x - 1.0 + np.float64(2.0) * x) == 20.0
    assert tally.multiplications == 3


def test_the_counted_network_is_the_operator(four):
    x, y = np.array([1.0, -2.0, 0.5, 3.0]), np.array([0.1, 0.2, -0.3, 0.4])
    H = four.to_dense().numpy()
    np.testing.assert_allclose(network(four).product(list(x)), H @ x, atol=1e-13)
    assert network(four).quadratic_form(list(x)) == pytest.approx(x @ H @ x)
    blocks, by_d = network(four).gradient(list(x), list(y))
    # The gradient by D from the formula: d‖QDQᵀx − y‖²/dD_i = 2 (Qᵀr)_i (Qᵀx)_i.
    Q = four.rotation.to_dense().numpy()
    np.testing.assert_allclose(by_d, 2 * (Q.T @ (H @ x - y)) * (Q.T @ x), atol=1e-12)
    gradient, other_d, z, u = np.empty((4, 4)), np.empty(4), np.empty((4, 1)), np.empty((4, 1))
    theta = four.rotation.angles.numpy()
    arguments = (unsigned_pairs(four.rotation.wiring), np.cos(theta), np.sin(theta), four.eigenvalues.numpy())
    for function in (extended_gradient, interpreted(extended_gradient)):
        function(*arguments, x[:, None].copy(), y[:, None], False, gradient, other_d, z, u)
        np.testing.assert_allclose(np.array(blocks).reshape(4, 4), gradient, atol=1e-12)
        np.testing.assert_allclose(by_d, other_d, atol=1e-12)
