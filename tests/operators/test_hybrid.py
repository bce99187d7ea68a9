"""HybridOperator: the contract of every operator, and Woodbury's formulas against dense algebra."""

import contract
import numpy as np
import pytest
import torch
from cases import assert_close, normal

from swallowtail.io import load, pack, save
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


WIRINGS = [Butterfly(8), Butterfly(5, 2), Pairs(6, [[(0, 5), (1, 2)], [(2, 3)]]), Pairs(6, [])]
CASES = [
    Case(wiring, dtype, rank)
    for wiring in WIRINGS
    for dtype, rank in ((torch.float64, 3), (torch.float32, 1), (torch.float64, 0), (torch.bfloat16, 2))
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.wiring}-{case.dtype}-{case.rank}")
@pytest.mark.parametrize("promise", contract.promises, ids=lambda promise: promise.__name__)
def test_contract(promise, case):
    if promise is contract.sparse_factors or not contract.applies(promise, case):
        pytest.skip("its sparse factors have other sizes, see below")
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


def test_shifts_and_multiples():
    operator, dense = CASES[0].build()
    eye = torch.eye(8, dtype=torch.float64)
    for found, expected in (
        (2 - operator / 4, 2 * eye - dense / 4),
        (3 * operator + 0.5, 3 * dense + 0.5 * eye),
        (-operator - 1, -dense - eye),
    ):
        assert isinstance(found, HybridOperator)
        assert_close(found.to_dense(), expected, 1e-13)


def test_inverse_is_of_the_same_rank_and_cost():
    for case in (CASES[0], CASES[-4]):
        operator, dense = case.build()
        inverse = operator.inverse()
        assert_close(inverse.to_dense(), torch.linalg.inv(dense), 1e-12)
        assert (inverse.rank, inverse.multiply_adds) == (operator.rank, operator.multiply_adds)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_function_by_block_lanczos(dtype):
    for case in (CASES[0], CASES[-4]):
        operator, dense = case.build()
        values, vectors = torch.linalg.eigh(dense)
        for f in (torch.exp, torch.sin, lambda d: d**2):
            found = operator.to(dtype=dtype).function(f)
            assert found.dtype == dtype
            assert_close(
                found.to_dense(), (vectors * f(values)) @ vectors.T, 1e-7 if dtype == torch.float64 else 1e-4
            )


def test_function_stays_small_where_it_can():
    U, w = normal(40, 3, seed=1), torch.tensor([4.0, 2.0, -0.5], dtype=torch.float64)
    exact = HybridOperator.without_rotations(torch.full((40,), 60.0, dtype=torch.float64), U, w)
    root = exact.function(torch.sqrt)
    assert root.rank == 3
    assert_close(root @ (root @ U), exact @ U, 1e-12)
    smooth = HybridOperator.without_rotations(torch.linspace(20.0, 21.0, 40, dtype=torch.float64), U, w.abs())
    assert smooth.function(torch.sqrt).rank < 30
    cut = smooth.function(torch.sqrt, max_rank=6)
    assert cut.rank <= 6
    assert_close(cut @ (cut @ U), smooth @ U, 1e-3)


def test_samples_have_the_covariance():
    for case in (CASES[0], CASES[4], CASES[-4]):
        operator, dense = case.build()
        draws = operator.sample(200_000, seed=0)
        assert torch.equal(draws[:5], operator.sample(200_000, seed=0)[:5])
        assert_close(draws.T @ draws / len(draws), dense, 0.03)
    positive = HybridOperator.without_rotations(
        torch.tensor([0.0, 1.0]), torch.ones(2, 1), torch.tensor([2.0])
    )
    draws = positive.sample(200_000, seed=1)
    assert_close(draws.T @ draws / len(draws), positive.to_dense(), 0.03)


def test_no_sample_without_a_covariance():
    U, w = torch.ones(2, 1), torch.tensor([-2.0])
    for d, match in (([-1.0, 1.0], "1 negative"), ([0.0, 1.0], "1 zero"), ([1.0, 1.0], "eigenvalues of H")):
        operator = HybridOperator.without_rotations(torch.tensor(d), U, w)
        with pytest.raises(ValueError, match=match):
            operator.sample()
        assert operator.sample(epsilon=1e-6).isfinite().all()


def test_sparse_factors_multiply_to_it():
    for case in CASES[0], CASES[2], CASES[-4]:
        operator, dense = case.build()
        product = np.eye(operator.n)
        for factor in operator.to_sparse_factors():
            product = product @ factor
        assert_close(torch.from_numpy(product), dense, 1e-13)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_as_an_operator_of_linear_operator():
    pytest.importorskip("linear_operator")
    operator, dense = CASES[0].build()
    X = normal(8, 3)
    assert_close(operator.to_linear_operator() @ X, dense @ X, 1e-12)


def test_gradients_go_through_all_parts():
    S = SymmetricOperator(
        Rotation(Pairs(4, []), torch.zeros(0, dtype=torch.float64)), normal(4).requires_grad_()
    )
    for symmetric in (S, SymmetricOperator(Rotation(Butterfly(4), normal(4).requires_grad_()), normal(4))):

        def product(x, U, w, symmetric=symmetric):
            return HybridOperator(symmetric, U, w)(x)

        inputs = [t.requires_grad_() for t in (normal(3, 4), normal(4, 2, seed=5), normal(2, seed=6))]
        assert torch.autograd.gradcheck(product, inputs)
    HybridOperator(S, normal(4, 1), normal(1))(normal(3, 4)).sum().backward()
    assert S.eigenvalues.grad is not None


def test_a_multiple_of_the_identity_is_one_number_in_a_file(tmp_path):
    operator = HybridOperator.without_rotations(torch.full((5,), 2.0), torch.ones(5, 1), torch.ones(1))
    save(operator, tmp_path / "c.safetensors")
    assert pack(operator)[1]["eigenvalues"].shape == (1,)
    assert torch.equal(load(tmp_path / "c.safetensors").to_dense(), operator.to_dense())


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


def test_it_keeps_copies_of_its_own():
    basis, weights = np.ones((16, 2)), np.array([1.0, -0.5])
    H = HybridOperator(SymmetricOperator(Rotation.random(16, seed=0), np.ones(16)), basis, weights)
    x = torch.ones(16, dtype=torch.float64)
    before = H(x)
    basis[:], weights[:] = 0, 7
    H.basis.zero_()
    H.weights.mul_(3)
    assert torch.equal(H(x), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
@pytest.mark.parametrize("rotations", [0, 24])
def test_a_product_on_a_gpu(rotations):
    """Weights of either sign, fixed and trained: the first have a matrix of their own on a GPU."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    Q = Rotation.random(16, seed=0) if rotations else Rotation.identity(16)
    H = HybridOperator(SymmetricOperator(Q, draw(16)), draw(16, 3), draw(3))
    there, x = H.to("cuda", torch.float32), draw(40, 16)
    expected = x.double() @ H.to(dtype=torch.float64).to_dense()
    assert_close(there(x.cuda()).double().cpu(), expected, 1e-5)
    weights = there.weights.requires_grad_()
    trained = HybridOperator(there.symmetric, there.basis, weights)
    with torch.no_grad():
        weights.mul_(2.0)
        by = expected + x.double() @ (H.basis * H.weights).double() @ H.basis.T.double()
        assert_close(trained(x.cuda()).double().cpu(), by, 1e-5)


def test_weighted_columns_give_the_same_product():
    """What a GPU multiplies with."""
    H = HybridOperator(
        SymmetricOperator(Rotation.random(16, seed=0), torch.randn(16)), torch.randn(16, 3), torch.randn(3)
    )
    x, expected = torch.randn(5, 16), H.to_dense()
    H._weighted = H.basis.T * H.weights[:, None]
    assert_close(H(x), x @ expected, 1e-5)
