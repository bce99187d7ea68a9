"""What every operator must do, stated once: one function per promise, each against the dense matrix.

A test module parametrises `promises` over its cases: ``promise(operator, dense, case)``.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from cases import HALF, arithmetic, assert_close, normal, tolerance


def _bound(operator, dtype):
    wiring = getattr(operator, "rotation", operator).wiring
    # Products go through at most 2L layers, and rank-one terms round once more. bfloat16 parameters are exact in
    # float64, so only x is rounded.
    return tolerance(dtype, 2 * wiring.n_layers + bool(getattr(operator, "rank", 0)))


def _check(actual, expected, operator, dtype, what):
    assert actual.dtype == dtype, (what, actual.dtype)
    assert actual.device == operator.device
    assert_close(actual, expected, _bound(operator, dtype), what)


def shape_and_attributes(operator, dense, case):
    assert operator.shape == dense.shape
    assert operator.batch_shape == dense.shape[:-2]
    assert operator.n == dense.shape[-1]
    assert operator.dtype == case.dtype
    assert operator.device == torch.device("cpu")
    assert f"n={operator.n}" in repr(operator)


def to_dense(operator, dense, case):
    _check(operator.to_dense(), dense, operator, case.dtype, "to_dense")


def matrix_times_columns(operator, dense, case):
    for k in (0, 1, 2, 3, 33):
        X = normal(operator.n, k, dtype=case.dtype)
        _check(operator @ X, dense @ X.double(), operator, case.dtype, f"H @ (n, {k})")


def matrix_times_batched_columns(operator, dense, case):
    X = normal(*operator.batch_shape, operator.n, 4, dtype=case.dtype)
    _check(operator @ X, dense @ X.double(), operator, case.dtype, "H @ (*batch, n, k)")
    X = normal(5, *[1] * len(operator.batch_shape), operator.n, 2, dtype=case.dtype)
    _check(operator @ X, dense @ X.double(), operator, case.dtype, "H @ broadcast")


def matrix_times_vector(operator, dense, case):
    x = normal(operator.n, dtype=case.dtype)
    _check(operator @ x, dense @ x.double(), operator, case.dtype, "H @ (n,)")


def left_products(operator, dense, case):
    x = normal(operator.n, dtype=case.dtype)
    _check(x @ operator, x.double() @ dense, operator, case.dtype, "(n,) @ H")
    X = normal(3, operator.n, dtype=case.dtype)
    _check(X @ operator, X.double() @ dense, operator, case.dtype, "(k, n) @ H")
    X = normal(*operator.batch_shape, 3, operator.n, dtype=case.dtype)
    _check(X @ operator, X.double() @ dense, operator, case.dtype, "(*batch, k, n) @ H")


def call_on_rows(operator, dense, case):
    for batch in ((), (1,), (7,), (2, 1, 3), (0,), (4, 0)):
        x = normal(*batch, *[1] * len(operator.batch_shape), operator.n, dtype=case.dtype)
        expected = (dense @ x.double()[..., None])[..., 0]
        _check(operator(x), expected, operator, case.dtype, f"H(x), x {tuple(x.shape)}")


def transpose(operator, dense, case):
    X = normal(operator.n, 3, dtype=case.dtype)
    _check(operator.T @ X, dense.mT @ X.double(), operator, case.dtype, "H.T @ X")
    _check(operator.T.T @ X, dense @ X.double(), operator, case.dtype, "H.T.T @ X")
    assert operator.T.shape == operator.shape


def adjoint_dot_test(operator, dense, case):
    """⟨Hx, y⟩ = ⟨x, Hᵀy⟩, with both products from the operator."""
    lead = [1] * len(operator.batch_shape)
    x, y = (normal(9, *lead, operator.n, dtype=case.dtype, seed=s) for s in (3, 4))
    left = (operator(x).double() * y.double()).sum(-1)
    right = (x.double() * operator.T(y).double()).sum(-1)
    sizes = x.double().norm(dim=-1) * y.double().norm(dim=-1) * _norm(dense)
    assert ((left - right).abs() <= 2 * _bound(operator, case.dtype) * sizes).all()


def _norm(dense):
    return torch.linalg.matrix_norm(dense, 2) if dense.numel() else torch.zeros(dense.shape[:-2])


def non_contiguous_input(operator, dense, case):
    n, dtype = operator.n, case.dtype
    columns = normal(n, 6, dtype=dtype)
    strided = normal(4, 2 * n, dtype=dtype)[:, ::2]
    expanded = normal(n, dtype=dtype).expand(3, n)
    flipped = normal(2, n, dtype=dtype).flip(-1)
    for name, x in {
        "transposed": columns.T,
        "strided": strided,
        "expanded": expanded,
        "flipped": flipped,
    }.items():
        before = x.clone()
        _check(operator(x), x.double() @ dense.mT, operator, dtype, name)
        assert torch.equal(x, before), f"{name} input was changed"


def input_is_left_alone(operator, dense, case):
    x = normal(3, *[1] * len(operator.batch_shape), operator.n, dtype=case.dtype)
    before = x.clone()
    y = operator(x)
    assert torch.equal(x, before)
    assert y.data_ptr() != x.data_ptr() or not x.numel()


def numpy_in_numpy_out(operator, dense, case):
    number = {torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16}[case.dtype]
    n, bound = operator.n, _bound(operator, case.dtype)
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(number)
    D = dense.numpy()
    row = X[:, 0].copy()
    for what, actual, expected in [
        ("H @ X", operator @ X, D @ X.astype(np.float64)),
        ("H @ x", operator @ row, D @ row.astype(np.float64)),
        ("X @ H", X.T @ operator, X.T.astype(np.float64) @ D),
        ("H(x)", operator(row), D @ row.astype(np.float64)),
    ]:
        assert isinstance(actual, np.ndarray), what
        assert actual.dtype == number, (what, actual.dtype)
        assert_close(torch.from_numpy(actual), torch.from_numpy(expected), bound, what)


def unusual_numpy_arrays(operator, dense, case):
    """Reversed, read-only and big-endian arrays, lists and whole numbers are all real numbers."""
    x = np.arange(1.0, operator.n + 1)
    frozen = x.copy()
    frozen.flags.writeable = False
    expected = dense @ torch.from_numpy(x)
    for value in (x[::-1].copy()[::-1], frozen, x.astype(">f8"), x.tolist(), x.astype(np.int32)):
        assert_close(torch.from_numpy(operator @ value), expected, _bound(operator, case.dtype))


def entries(operator, dense, case):
    n, last = operator.n, operator.n - 1
    if operator.batch_shape:
        with pytest.raises(ValueError, match="expected one operator, got a batch"):
            operator[0, 0]
        return
    for index in [
        (0, last),
        (-1, slice(None)),
        (slice(None), 0),
        (slice(None, 3), slice(1, None, 2)),
        ([0, last], slice(None)),
        (slice(None), np.array([last, 0])),
        ([0, last, 0], [last, last, 0]),
        (torch.tensor([[0], [last]]), torch.tensor([0, last])),
    ]:
        expected = torch.from_numpy(
            np.asarray(
                dense.numpy()[tuple(np.asarray(p) if isinstance(p, torch.Tensor) else p for p in index)]
            )
        )
        assert operator[index].shape == expected.shape, index
        assert operator[index].dtype == case.dtype
        # An entry may be small beside its column: errors are relative to the matrix.
        off = (operator[index].double() - expected).abs().max() if expected.numel() else 0.0
        assert off <= _bound(operator, case.dtype) * _norm(dense), index
    for index in (0, (0, n), (0, 0, 0), (0.5, 0), ([0, 0], [0, 0, 0])):
        with pytest.raises(ValueError, match="index: expected"):
            operator[index]


def as_an_array(operator, dense, case):
    array = np.asarray(operator)
    assert array.dtype == (np.float64 if case.dtype == torch.float64 else np.float32)
    assert_close(torch.from_numpy(array).double(), dense, _bound(operator, case.dtype))
    assert np.array_equal(operator.to_numpy(), array)
    assert np.asarray(operator, dtype=np.float16).dtype == np.float16
    with pytest.raises(ValueError, match="no array to share"):
        np.array(operator, copy=False)


def scipy_export(operator, dense, case):
    if operator.batch_shape:
        with pytest.raises(ValueError, match="expected one operator, got a batch"):
            operator.to_scipy()
        return
    L = operator.to_scipy()
    assert L.shape == (operator.n, operator.n)
    assert L.dtype == (np.float64 if case.dtype == torch.float64 else np.float32)
    x = np.random.default_rng(0).standard_normal(operator.n)
    X = np.random.default_rng(1).standard_normal((operator.n, 3))
    D, bound = dense.numpy(), _bound(operator, arithmetic(case.dtype))
    for what, actual, expected in [
        ("matvec", L.matvec(x), D @ x),
        ("rmatvec", L.rmatvec(x), D.T @ x),
        ("matmat", L @ X, D @ X),
        ("rmatmat", L.H @ X, D.T @ X),
    ]:
        assert_close(torch.from_numpy(actual), torch.from_numpy(expected), bound, what)
    with pytest.raises(TypeError, match="expected float64"):
        L @ (x + 1j)


def sparse_factors(operator, dense, case):
    if operator.batch_shape:
        with pytest.raises(ValueError, match="expected one"):
            operator.to_sparse_factors()
        return
    product = np.eye(operator.n)
    for factor in operator.to_sparse_factors():
        assert factor.nnz <= 2 * operator.n
        product = product @ factor.toarray()
    assert_close(torch.from_numpy(product), dense, 1e-13)


def dtypes_promote(operator, dense, case):
    for dtype in (torch.float64, torch.float32):
        x = normal(operator.n, dtype=dtype)
        expected = torch.promote_types(dtype, case.dtype)
        assert (operator @ x).dtype == expected
        assert (
            operator(normal(3, *[1] * len(operator.batch_shape), 2 * operator.n, dtype=dtype)[..., ::2]).dtype
            == expected
        )
    for dtype in HALF:
        assert (operator @ normal(operator.n, dtype=dtype)).dtype == dtype  # storage only: kept


def converts(operator, dense, case):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        other = operator.to(dtype=dtype)
        assert other.dtype == dtype
        assert other.shape == operator.shape
    double = operator.to(dtype=torch.float64)
    X = normal(operator.n, 2)
    _check(double @ X, dense @ X, double, torch.float64, ".to(float64) @ X")


def copies_and_pickles(operator, dense, case):
    X = normal(operator.n, 2, dtype=case.dtype)
    expected = operator @ X  # also fills the cache of coefficients, which must not travel
    for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert torch.equal(other @ X, expected)


promises = [
    shape_and_attributes, to_dense, matrix_times_columns, matrix_times_batched_columns, matrix_times_vector,
    left_products, call_on_rows, transpose, adjoint_dot_test, non_contiguous_input, input_is_left_alone,
    numpy_in_numpy_out, unusual_numpy_arrays, scipy_export, sparse_factors, dtypes_promote, converts,
    copies_and_pickles, entries, as_an_array,
]  # fmt: skip

_ONLY_FOR = {
    non_contiguous_input: lambda case: not case.batch,
    numpy_in_numpy_out: lambda case: case.dtype != torch.bfloat16,  # NumPy has none
    unusual_numpy_arrays: lambda case: not case.batch and case.dtype not in HALF,
}


def applies(promise, case):
    return promise not in _ONLY_FOR or _ONLY_FOR[promise](case)
