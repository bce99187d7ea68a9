"""Dense products against NumPy's: all edges of tiles, any strides of the left factor."""

from __future__ import annotations

import numpy as np
import pytest

from swallowtail.kernels.cpu.codegen import dense
from swallowtail.kernels.cpu.jit import njit


@njit()
def product(A, B, C):
    dense.multiply(A, B, C)


@njit()
def turn(A, B):
    dense.transpose(A, B)


@njit()
def outer(A, x, y):
    dense.add_outer(A, x, y)


def draw(*shape, dtype=np.float64):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 4, 7, 8, 15, 16, 17, 33, 64, 100])
def test_products(n, dtype):
    for m in (1, 2, 5, 6, 7, 13):
        for inner in (1, 2, 9):
            A, B = draw(m, inner, dtype=dtype), draw(inner, n, dtype=dtype)
            C = np.full((m, n), np.nan, dtype)
            product(A, B, C)
            assert np.allclose(C, A @ B, rtol=0, atol=40 * np.finfo(dtype).eps)


def test_parts_of_matrices_and_transposed_ones():
    A, B, C = draw(9, 20), draw(9, 60), np.zeros((30, 50))
    product(A[:, 3::2].T, B[:, 5:42], C[2:11, 7:44])
    expected = np.zeros((30, 50))
    expected[2:11, 7:44] = A[:, 3::2].T @ B[:, 5:42]
    assert np.allclose(C, expected, atol=1e-13)


def test_products_of_nothing_are_zero():
    C = np.ones((3, 4))
    product(np.ones((3, 0)), np.ones((0, 4)), C)
    assert (C == 0).all()


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (16, 16), (17, 33), (100, 64)], ids=str)
def test_transposed(shape):
    A, B = draw(*shape, dtype=np.float32), np.zeros((shape[1] + 2, shape[0] + 5), np.float32)
    turn(A[:, 1:], B[1:-2, 2 : 2 + shape[0]])
    assert np.array_equal(B[1:-2, 2 : 2 + shape[0]], A[:, 1:].T)
    assert np.count_nonzero(B) == A[:, 1:].size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_outer_products_are_added(dtype):
    A, x, y = draw(5, 32, dtype=dtype), draw(5, dtype=dtype), draw(32, dtype=dtype)
    expected = A + np.outer(x, y)
    outer(A, x, y)
    assert np.allclose(A, expected, atol=10 * np.finfo(dtype).eps)
