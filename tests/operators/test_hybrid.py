"""HybridOperator: the contract of every operator, and Woodbury's formulas against dense algebra."""

import contract
import numpy as np
import pytest
import torch
from cases import assert_close, normal

from swallowtail.io import load, save
from swallowtail.operators import HybridOperator, Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs


class Case:
    def __init__(self, wiring, dtype, rank):
        self.wiring, self.dtype, self.rank, self.batch = wiring, dtype, rank, ()

    def build(self):
        K, n = self.wiring.n_rotations, self.wiring.n
        d = torch.linspace(0.5, 2.0, n, dtype=torch.float64)
        S = SymmetricOperator(Rotation(self.wiring, normal(K, seed=1)), d)
        weights = torch.tensor([3.0, -0.02, 0.7], dtype=torch.float64)[: self.rank]
        operator = HybridOperator(S, normal(n, self.rank, seed=2), weights).to(dtype=self.dtype)
        exact = operator.to(dtype=torch.float64)
        eye = torch.eye(n, dtype=torch.float64)
        U, w = exact.basis, exact.weights
        return operator, exact.symmetric @ eye + (U * w) @ U.T


WIRINGS = [Butterfly(8), Butterfly(5, 2), Pairs(6, [[(0, 5), (1, 2)], [(2, 3)]])]
CASES = [
    Case(wiring, dtype, rank)
    for wiring in WIRINGS
    for dtype, rank in ((torch.float64, 3), (torch.float32, 1), (torch.float64, 0), (torch.bfloat16, 2))
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.wiring}-{case.dtype}-{case.rank}")
@pytest.mark.parametrize("promise", contract.promises, ids=lambda promise: promise.__name__)
def test_contract(promise, case):
    if promise is contract.sparse_factors or not contract.applies(promise, case):
        pytest.skip("a sum is no product of sparse factors")
    operator, dense = case.build()
    promise(operator, dense, case)


def test_what_is_cheap_agrees_with_the_dense_matrix():
    operator, dense = CASES[0].build()
    x = normal(4, 8)
    assert_close(operator.trace(), dense.trace(), 1e-13)
    assert_close(operator.diagonal(), dense.diagonal(), 1e-13)
    assert_close(operator.quadratic_form(x), ((x @ dense) * x).sum(-1), 1e-13)
    assert isinstance(operator.quadratic_form(x.numpy()), np.ndarray)
    assert operator.multiply_adds == operator.symmetric.multiply_adds + 2 * 8 * 3


def test_solve_and_logdet_by_woodbury():
    operator, dense = CASES[0].build()
    for B in (normal(8), normal(8, 3)):
        assert_close(operator.solve(B), torch.linalg.solve(dense, B), 1e-12)
        assert_close(torch.from_numpy(operator.solve(B.numpy())), torch.linalg.solve(dense, B), 1e-12)
    sign, size = torch.linalg.slogdet(dense)
    assert sign > 0
    assert_close(operator.logdet(), size, 1e-12)


def test_a_negative_determinant_has_no_logarithm():
    S = SymmetricOperator(Rotation.identity(2), torch.tensor([1.0, 1.0]))
    assert HybridOperator(S, torch.tensor([[1.0], [0.0]]), torch.tensor([-3.0])).logdet().isnan()


def test_a_singular_part_is_an_error_that_names_the_way_out():
    S = SymmetricOperator(Rotation.identity(2), torch.tensor([0.0, 1.0]))
    operator = HybridOperator(S, torch.tensor([[1.0], [0.0]]), torch.tensor([1.0]))
    with pytest.raises(ValueError, match="try `epsilon=1e-6`"):
        operator.solve(torch.ones(2))
    assert torch.allclose(operator.solve(torch.ones(2), epsilon=1e-6), torch.ones(2), atol=1e-5)


def test_save_and_load(tmp_path):
    operator, dense = CASES[-4].build()
    save(operator, tmp_path / "hybrid.safetensors")
    again = load(tmp_path / "hybrid.safetensors")
    assert isinstance(again, HybridOperator)
    assert_close(again.to_dense(), dense, 1e-13)


def test_wrong_parts_are_told():
    S = SymmetricOperator(Rotation.identity(3), torch.ones(3))
    with pytest.raises(TypeError, match="expected a SymmetricOperator"):
        HybridOperator(S.rotation, torch.ones(3, 1), torch.ones(1))
    with pytest.raises(ValueError, match=r"basis: expected shape \(3, r\)"):
        HybridOperator(S, torch.ones(4, 1), torch.ones(1))
    with pytest.raises(ValueError, match=r"weights: expected shape \(1,\)"):
        HybridOperator(S, torch.ones(3, 1), torch.ones(2))
    batch = SymmetricOperator(Rotation.identity(3), torch.ones(2, 3))
    with pytest.raises(ValueError, match="expected one operator, got a batch"):
        HybridOperator(batch, torch.ones(3, 1), torch.ones(1))
