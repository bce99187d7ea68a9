"""Error angle and relative error: closed forms, all kinds of operands, the intervals' coverage, bad input."""

import numpy as np
import pytest
import scipy.sparse as sparse
import torch
from scipy.sparse.linalg import aslinearoperator

from swallowtail.datasets import random_symmetric
from swallowtail.metrics import Estimate, column_angles, error_angle, error_angle_interval, relative_error
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator

A, B = random_symmetric(12, 3, 0), random_symmetric(12, 3, 1)


class OnlyMatmul:
    """Something of which nothing is known but ``@``."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __matmul__(self, X):
        return self.matrix @ X


def _overwriting(matrix, X):
    Y = matrix @ X
    X[:] = 0
    return Y


KINDS = {
    "array": lambda M: M,
    "list": lambda M: M.tolist(),
    "tensor": torch.from_numpy,
    "sparse": sparse.csr_array,
    "LinearOperator": aslinearoperator,
    "matmul": OnlyMatmul,
    "function": lambda M: lambda X: M @ X,
    "function of tensors": lambda M: lambda X: torch.mm(torch.from_numpy(M), X),
    "function that overwrites": lambda M: lambda X: _overwriting(M, X),
}


def test_angle_of_a_plane_rotation_is_its_angle():
    c, s = np.cos(0.3), np.sin(0.3)
    assert error_angle(np.eye(2), [[c, -s], [s, c]], n_probes=10) == pytest.approx(np.degrees(0.3))


def test_probes_are_no_rows_of_data_drawn_with_the_same_seed():
    rows = np.random.default_rng(0).standard_normal((60, 50))
    H, B = rows.T @ rows, rows[:20].T @ rows[:20]  # B is closer on these rows than elsewhere: 39° and 44.6°
    assert error_angle(H, B, n_probes=60) == pytest.approx(error_angle(H, B, n_probes=20000, seed=5), abs=2)


@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30, 1e200])
def test_angle_does_not_depend_on_scale(factor):
    assert error_angle(A, factor * A) < 1e-6
    assert error_angle(A, -factor * A) == pytest.approx(180.0)
    assert error_angle(factor * A, B) == pytest.approx(error_angle(A, B))


def test_small_angles_keep_their_digits():
    a, b = np.array([[1.0], [0.0]]), np.array([[1.0], [1e-12]])
    assert column_angles(a, b)[0] == pytest.approx(np.degrees(1e-12))


def test_zero_vectors():
    zero = np.zeros((12, 12))
    assert error_angle(A, zero) == pytest.approx(90.0)
    assert error_angle(zero, A) == pytest.approx(90.0)
    assert error_angle(zero, zero) == 0.0
    assert relative_error(zero, zero).value == 0.0
    assert relative_error(zero, A).value == np.inf
    assert relative_error(lambda X: 0 * X, A).value == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_operand_gives_the_same_number(kind):
    assert error_angle(KINDS[kind](A), B) == pytest.approx(error_angle(A, B), rel=1e-12)
    assert error_angle(A, KINDS[kind](B)) == pytest.approx(error_angle(A, B), rel=1e-12)
    estimate = relative_error(KINDS[kind](A), B, n_probes=4000)
    assert estimate.value == pytest.approx(relative_error(A, B).value, rel=0.1)


def test_operators_of_this_package():
    H = SymmetricOperator(Rotation.random(12, seed=0), torch.linspace(0, 1, 12))
    assert error_angle(H, H.to_dense()) < 1e-3
    assert relative_error(H.to_dense(), H).value < 1e-5


def test_two_functions_need_n_and_blocks_do_not_matter(monkeypatch):
    whole = error_angle(lambda X: A @ X, lambda X: B @ X, n=12)
    monkeypatch.setattr("swallowtail.metrics._BLOCK", 12 * 7)
    assert error_angle(A, B) == pytest.approx(whole)


def test_relative_error_is_exact_when_both_are_dense():
    expected = np.linalg.norm(A - B) / np.linalg.norm(A)
    for factor in (1e-200, 1.0, 1e200):
        assert relative_error(factor * A, factor * B) == pytest.approx((expected,) * 3)


def test_intervals_cover_the_truth_as_often_as_they_say():
    angle, error = error_angle(A, B, n_probes=200_000), relative_error(A, B).value
    covered = np.zeros(2)
    for seed in range(200):
        interval = error_angle_interval(A, B, 40, seed)
        estimate = relative_error(lambda X: A @ X, B, 40, seed)
        assert interval.low < interval.value < interval.high
        covered += [interval.low <= angle <= interval.high, estimate.low <= error <= estimate.high]
    assert np.all(covered >= 180), covered  # 95 % of 200 is 190 ± 3


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        ((A, B[:6, :6]), {}, ValueError, "one shape"),
        ((A, B[0]), {}, ValueError, "matrix"),
        ((A, "B"), {}, TypeError, "something with @"),
        ((A, 1j * B), {}, TypeError, "real part"),
        ((A, B * np.nan), {}, ValueError, "finite"),
        ((A, lambda X: X[:, :3]), {}, ValueError, "product of shape"),
        ((A, lambda X: X[:3]), {}, ValueError, "one shape"),
        ((lambda X: X, lambda X: X), {}, TypeError, "n=64"),
        ((A, B), {"n": 5}, ValueError, "leave it out"),
        ((A, B), {"n_probes": 0}, ValueError, "n_probes"),
        ((A, torch.zeros(3, 12, 12)), {}, ValueError, "matrix"),
        (([[1.0], [1.0, 2.0]], np.eye(2)), {}, ValueError, "A: expected rows of numbers"),
    ],
)
def test_bad_input(arguments, keywords, error, words):
    with pytest.raises(error, match=words):
        error_angle(*arguments, **keywords)


def test_bad_confidence():
    with pytest.raises(ValueError, match="confidence"):
        error_angle_interval(A, B, confidence=95)
    with pytest.raises(ValueError, match="n_probes"):
        relative_error(A, B, n_probes=1)


def test_an_estimate_around_a_value():
    estimate = Estimate.around(2.0, error=0.5)
    assert estimate == (2.0, pytest.approx(1.02), pytest.approx(2.98))
    assert estimate.error == pytest.approx(0.5)
    assert Estimate.around(2.0, error=0.0) == (2.0, 2.0, 2.0)
