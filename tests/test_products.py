"""Functions that multiply columns: of arrays, of tensors, of one vector, and with a fault of their own."""

import numpy as np
import pytest
import torch

from swallowtail import error_angle, fit_symmetric, random_symmetric

A, B = (np.random.default_rng(seed).standard_normal((12, 12)) for seed in (0, 1))


def test_a_function_of_float32_tensors_gets_them():
    single = torch.from_numpy(A).float()
    assert error_angle(lambda X: torch.mm(single, X), B, n=12) == pytest.approx(error_angle(A, B), rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, in forward mode
@pytest.mark.parametrize(
    "product",
    [
        lambda v: torch.func.jvp(
            lambda p: torch.from_numpy(A) @ p, (torch.zeros(12, dtype=torch.float64),), (v,)
        )[1],
        lambda v: torch.autograd.functional.hvp(
            lambda p: p @ torch.from_numpy(A + A.T) @ p / 4, torch.zeros(12, dtype=torch.float64), v
        )[1],
        lambda v: A @ v.reshape(12),
    ],
    ids=["jvp", "hvp", "arrays"],
)
def test_a_function_of_one_vector(product):
    M = (A + A.T) / 2 if "hvp" in product.__code__.co_names else A
    assert error_angle(product, M, n=12) < 1e-6


def test_a_function_with_a_fault_of_its_own_shows_it():
    def faulty(X):
        return X @ "no matrix"

    with pytest.raises(TypeError, match=r"matmul|unsupported"):
        error_angle(faulty, B, n=12)


def test_a_path_is_no_matrix():
    with pytest.raises(ValueError, match=r"got str; try numpy.load"):
        error_angle("cov.npy", A)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_function_that_holds_a_tensor_is_given_tensors(dtype, recwarn):
    """An array times a tensor works, but NumPy warns of how PyTorch wraps the result."""
    H = torch.from_numpy(random_symmetric(12, 3, 0)).to(dtype)
    seen = []

    def product(X):
        seen.append(type(X))
        return H @ X

    result = fit_symmetric(product, 12)
    assert seen[-1] is torch.Tensor
    assert result.angle == pytest.approx(fit_symmetric(H).angle, abs=0.01)
    assert not recwarn.list
