"""f(H)x by Lanczos, and f of a completion, against eigendecompositions."""

import numpy as np
import pytest

from swallowtail.fitting.core.completion import complete, probe
from swallowtail.fitting.core.lanczos import function_columns, function_of_completion

N = 40
V = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0]
D = np.linspace(0.5, 4.0, N)
H = (V * D) @ V.T
X = np.random.default_rng(1).standard_normal((N, 3))
FUNCTIONS = {"inverse": lambda d: 1 / d, "exp": lambda d: np.exp(-2 * d), "root": np.sqrt}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_columns_are_those_of_the_function(f):
    seen = []

    def product(columns):
        seen.append(columns.shape[1])
        return H @ columns

    found = function_columns(product, f, X, 3 * N, tolerance=1e-9)
    np.testing.assert_allclose(found.Y, (V * f(D)) @ V.T @ X, atol=1e-8)
    assert found.n_products == sum(seen) < 3 * N
    assert found.change <= 1e-9


def test_the_limit_on_products_is_hard_and_the_change_tells():
    few = function_columns(lambda columns: H @ columns, FUNCTIONS["inverse"], X, 14)
    assert few.n_products == 12
    error = np.linalg.norm(few.Y - np.linalg.solve(H, X)) / np.linalg.norm(few.Y)
    assert 0.1 * error < few.change < 10


def test_columns_that_need_fewer_steps_than_others():
    columns = np.stack([V[:, 3], np.zeros(N), X[:, 0]], axis=1)
    found = function_columns(lambda C: H @ C, np.exp, columns, 3 * N, tolerance=1e-10)
    np.testing.assert_allclose(found.Y, (V * np.exp(D)) @ V.T @ columns, rtol=1e-8, atol=1e-8)
    alone = function_columns(lambda C: H @ C, np.exp, columns[:, :1], N)
    assert alone.n_products <= 2
    assert alone.change == 0.0


def test_ritz_values_stay_between_the_eigenvalues():
    asked = []
    f = lambda d: asked.append(d) or d
    function_columns(lambda C: H @ C, f, X, 60)
    values = np.concatenate(asked)
    assert values.min() >= D[0] - 1e-12
    assert values.max() <= D[-1] + 1e-12


def test_a_function_of_a_completion():
    """Of c·I plus low rank: exact from few products. Of anything: exact from n."""
    low = 2.0 * np.eye(N) + (V[:, :4] * [5.0, 3.0, 1.0, 2.0]) @ V[:, :4].T
    for A, m in ((low, 16), (H, N)):
        probes = probe(lambda C, A=A: A @ C, N, m)
        found = function_of_completion(probes, complete(probes), np.exp).factor.dense()
        d, U = np.linalg.eigh(A)
        np.testing.assert_allclose(found, (U * np.exp(d)) @ U.T, rtol=1e-6, atol=1e-6 * np.exp(d[-1]))


def test_the_completion_asks_nothing_outside_the_ritz_values():
    probes, asked = probe(lambda C: H @ C, N, 8), []
    function_of_completion(probes, complete(probes), lambda d: asked.append(d) or d)
    T = probes.X.T @ probes.Y
    theta = np.linalg.eigvalsh((T + T.T) / 2)
    assert asked[0].min() >= theta[0] - 1e-12  # LAPACK's two ways to these values differ in the last bits
    assert asked[0].max() <= theta[-1] + 1e-12
