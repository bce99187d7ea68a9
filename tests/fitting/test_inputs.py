"""What a fit can start from, in one form."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import aslinearoperator

import swallowtail as st
from swallowtail.fitting import inputs
from swallowtail.fitting.core.samples import as_rows
from swallowtail.fitting.inputs import as_problem
from swallowtail.fitting.properties import Symmetric, warn_asymmetry

H = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 1.0]])


def problem(source, n=None, symmetrize=False, max_products=None):
    return as_problem(source, n, Symmetric(symmetrize), max_products)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        (H, torch.float64),
        (H.tolist(), torch.float64),
        (H.astype(np.float32), torch.float32),
        (H.astype(np.int64), torch.float64),
        (H.astype(">f8"), torch.float64),
        (H[::-1, ::-1][::-1, ::-1], torch.float64),
        (torch.from_numpy(H).bfloat16(), torch.bfloat16),
        (H.astype(np.float16), torch.float16),
        (torch.from_numpy(H).to(torch.int32), torch.float64),
        (sp.csr_array(H), torch.float64),
        (sp.dok_array(H), torch.float64),
    ],
)
def test_entries(source, dtype):
    found = problem(source)
    np.testing.assert_array_equal(found.dense, H)
    assert found.dense.dtype == np.float64
    assert found.dense.flags.c_contiguous
    assert (found.n, found.dtype, found.n_products) == (3, dtype, 0)
    assert found.product is found.samples is None
    assert (found.sparse is not None) == sp.issparse(source)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_whole_numbers_keep_their_digits(kind):
    large = 2**24 + 1  # the first whole number that float32 does not hold
    found = problem(kind([[large, 0], [0, 1]]))
    assert (found.dense[0, 0], found.dtype) == (large, torch.float64)
    assert as_rows("x", kind([large, 1]))[0, 0] == large


def test_the_callers_numbers_are_left_alone():
    A = H.copy()
    problem(A).dense[0, 0] = 99.0
    np.testing.assert_array_equal(A, H)
    A[0, 1] += 0.5
    problem(A, symmetrize=True)
    assert A[0, 1] == 1.5


@pytest.mark.parametrize("source", [aslinearoperator(H), st.fit_symmetric(H).operator, lambda X: H @ X])
def test_products_few_and_many(source):
    n = None if hasattr(source, "shape") else 3
    exact = source(np.eye(3)) if n else source @ np.eye(3)
    few = problem(source, n, max_products=2)
    np.testing.assert_allclose(few.product(np.eye(3)), exact, atol=1e-12)
    assert few.dense is None
    all_of_it = problem(source, n, max_products=3)
    np.testing.assert_allclose(all_of_it.dense, exact, atol=1e-12)
    assert all_of_it.product is None
    assert all_of_it.n_products == 3


def test_large_operators_are_not_read_off():
    calls = []

    def product(X):
        calls.append(X.shape)
        return X

    assert problem(product, 2000).product is not None
    assert calls == []
    assert problem(product, 1000).n_products == 1000


def test_operators_in_torch_are_given_tensors_of_their_dtype():
    seen = []

    class Foreign:
        shape, dtype, device = (3, 3), torch.float32, torch.device("cpu")

        def __matmul__(self, X):
            seen.append((type(X), X.dtype))
            return torch.from_numpy(H).float() @ X

    found = problem(Foreign())
    assert seen == [(torch.Tensor, torch.float32)]
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.dense, H)


def test_samples():
    X = np.random.default_rng(0).standard_normal((3, 7))
    for samples in ((X, H @ X), [X, H @ X], (torch.from_numpy(X), torch.from_numpy(H @ X))):
        found = problem(samples)
        assert found.n == 3
        np.testing.assert_array_equal(found.samples[0], X)
        assert found.dense is found.product is None
    assert problem((X.astype(np.float32), X.astype(np.float32))).dtype == torch.float32


def test_two_rows_as_a_list_are_a_matrix():
    np.testing.assert_array_equal(problem([[2.0, 1.0], [1.0, 2.0]]).dense, [[2.0, 1.0], [1.0, 2.0]])


@pytest.mark.parametrize("source", [H, sp.csr_array(H), aslinearoperator(H), (H, H)])
def test_n_must_agree(source):
    problem(source, 3)
    with pytest.raises(ValueError, match=r"n: expected 3.*got 4; leave it out"):
        problem(source, 4)


def test_large_sparse(monkeypatch):
    monkeypatch.setattr(inputs, "DENSE_SPARSE", 2)
    found = problem(sp.csr_array(H))
    assert found.dense is None
    np.testing.assert_array_equal(found.product(np.eye(3)), H)
    A = H.copy()
    A[0, 1] = 5.0
    with pytest.raises(ValueError, match=r"4 apart.*symmetrize=True"):
        problem(sp.csr_array(A))
    np.testing.assert_array_equal(problem(sp.csr_array(A), symmetrize=True).product(np.eye(3)), (A + A.T) / 2)


def test_products_of_the_wrong_size():
    with pytest.raises(ValueError, match=r"expected products of shape \(4, 4\).*got \(3, 4\)"):
        problem(lambda X: X[:3], 4)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_asymmetry_of_products_is_said(scale):
    A = np.triu(H) * scale
    with pytest.warns(UserWarning, match=r"antisymmetric part 0\.\d+ of the whole"):
        found = problem(lambda X: A @ X, 3)
    np.testing.assert_array_equal(found.dense, (A + A.T) / 2)
    warn_asymmetry(1e-9)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors(layout):
    found = problem(torch.from_numpy(H).float().to_sparse(layout=layout))
    assert np.array_equal(found.dense, H)
    assert found.sparse.nnz == 7
    assert found.dtype == torch.float32


def test_sparse_matrices_keep_their_dtype_and_its_rounding():
    nearly = H.astype(np.float32)
    nearly[0, 1] *= 1 + 2**-23
    assert problem(sp.csr_array(nearly)).dtype == torch.float32
    with pytest.raises(ValueError, match="symmetric"):
        problem(sp.csr_array(nearly.astype(np.float64)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.ones((5, 3)), r"got shape \(5, 3\); if these are rows of data, try their covariance"),
        (np.ones((2, 3, 3)), "try one matrix of the batch"),
        (np.ones(3), r"try numpy.diag\(H\)"),
        ([[1.0, 2.0], [3.0]], "H: expected a matrix, got rows of unequal length"),
    ],
)
def test_wrong_shapes_say_what_to_do(source, message):
    with pytest.raises(ValueError, match=message):
        problem(source)


def test_frames_are_matrices_whatever_their_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(H, index=list("xyz"), columns=list("abc"))
    np.testing.assert_array_equal(problem(frame).dense, H)
    narrow = (frame + 1e-7 * np.tri(3)).astype(np.float32)  # symmetric within rounding, as an array is
    assert problem(narrow).dtype == problem(narrow.to_numpy()).dtype == torch.float32
    frame["b"] = ["one", "two", "three"]
    with pytest.raises(
        st.ArgumentError, match="numbers in every column of the DataFrame, got something else in b"
    ):
        problem(frame)
