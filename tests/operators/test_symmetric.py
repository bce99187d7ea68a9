"""SymmetricOperator: inverses, functions, traces, samples, against the dense matrix."""

import operator

import numpy as np
import pytest
import torch
from cases import WIRINGS, dense_rotation, normal, random_angles

from swallowtail import ArgumentError, Butterfly, Rotation, SymmetricOperator, use_backend

NAMES = (
    "butterfly-1",
    "butterfly-5",
    "butterfly-65",
    "butterfly-64-deep",
    "butterfly-64-reverse",
    "pairs-17",
    "pairs-5-no-layers",
)
EVERY = pytest.mark.parametrize("name", NAMES)


def build(name, d=None, batch=()):
    wiring = WIRINGS[name]
    Q = Rotation(wiring, random_angles(wiring, *batch))
    d = normal(*batch, wiring.n, seed=2).abs() + 0.5 if d is None else d
    dense = torch.zeros(*batch, wiring.n, wiring.n, dtype=torch.float64)
    for index in np.ndindex(batch):
        dense[index] = dense_rotation(wiring, Q.angles[index])
    return SymmetricOperator(Q, d), dense @ torch.diag_embed(d) @ dense.mT


@EVERY
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_solve_and_inverse(name, batch):
    H, dense = build(name, batch=batch)
    B = normal(*batch, H.n, 4)
    torch.testing.assert_close(H.solve(B), torch.linalg.solve(dense, B))
    torch.testing.assert_close(H.inverse().to_dense(), torch.linalg.inv(dense))
    b = normal(H.n)
    torch.testing.assert_close(H.solve(b), (torch.linalg.inv(dense) @ b[:, None])[..., 0])
    if not batch:
        assert isinstance(H.solve(B.numpy()), np.ndarray)


@EVERY
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_traces_and_determinants(name, batch):
    H, dense = build(name, batch=batch)
    torch.testing.assert_close(H.trace(), dense.diagonal(dim1=-2, dim2=-1).sum(-1))
    torch.testing.assert_close(H.logdet(), torch.logdet(dense))


@EVERY
def test_functions(name):
    H, dense = build(name)
    root = H.function(torch.sqrt)
    torch.testing.assert_close(root.to_dense() @ root.to_dense(), dense)
    torch.testing.assert_close(H.function(torch.exp).to_dense(), torch.linalg.matrix_exp(dense))
    with pytest.raises(ValueError, match="f: expected a function"):
        H.function(lambda d: 3.0)


@EVERY
@pytest.mark.parametrize("batch", [(), (2,)])
def test_quadratic_forms(name, batch):
    H, dense = build(name, batch=batch)
    x = normal(5, *[1] * len(batch), H.n)
    expected = (x[..., None, :] @ dense @ x[..., None])[..., 0, 0]
    torch.testing.assert_close(H.quadratic_form(x), expected)
    as_array = H.quadratic_form(x.numpy())
    assert isinstance(as_array, np.ndarray)
    np.testing.assert_allclose(as_array, expected)


@EVERY
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_diagonals(name, batch):
    H, dense = build(name, batch=batch)
    torch.testing.assert_close(H.diagonal(), dense.diagonal(dim1=-2, dim2=-1))


def test_the_paths_of_a_butterfly_give_the_diagonal_in_blocks_too():
    H, _ = build("butterfly-65")
    torch.testing.assert_close(H._diagonal_by_paths(), H._diagonal_by_blocks())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_diagonals_lose_one_rounding_only(dtype):
    wiring = Butterfly(256)
    H = SymmetricOperator(
        Rotation(wiring, random_angles(wiring, dtype=dtype)), normal(256, dtype=dtype).abs() + 1
    )
    exact = H.to(dtype=torch.float64).diagonal()
    assert H.diagonal().dtype == dtype
    torch.testing.assert_close(H.diagonal().double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


def test_estimated_diagonals_are_unbiased_and_seeded():
    H, dense = build("butterfly-64-deep")
    estimate = H.diagonal("estimate", n_probes=4000, seed=1)
    assert torch.equal(estimate, H.diagonal("estimate", n_probes=4000, seed=1))
    off = dense - torch.diag(dense.diagonal())
    deviation = (off**2).sum(-1).sqrt() / 4000**0.5  # of the mean of n_probes products with random signs
    assert ((estimate - dense.diagonal()).abs() < 5 * deviation).all()
    with pytest.raises(ValueError, match="method: expected one of 'exact', 'estimate', got 'guess'"):
        H.diagonal("guess")


def test_samples_have_the_covariance():
    H, dense = build("butterfly-5")
    draws = H.sample(40_000, seed=0)
    assert draws.shape == (40_000, 5)
    assert draws.dtype == torch.float64
    size = dense.diagonal().max()
    assert (draws.mean(0).abs() < 5 * (size / 40_000) ** 0.5).all()
    assert ((draws.T @ draws / 40_000 - dense).abs() < 5 * size * (2 / 40_000) ** 0.5).all()
    assert torch.equal(draws[:0].reshape(0, 5), H.sample(0, seed=0))
    assert torch.equal(H.sample(3, seed=1), H.sample(3, seed=1))
    assert not torch.equal(H.sample(3), H.sample(3))
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(H.sample(3, generator=generator), H.sample(3, seed=1))
    with pytest.raises(
        ArgumentError, match=r"^generator: expected a torch.Generator, got Generator\(PCG64\)"
    ):
        H.sample(generator=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="one of the two"):
        H.sample(3, seed=1, generator=generator)
    batched, _ = build("butterfly-5", batch=(2,))
    assert batched.sample(7, seed=0).shape == (7, 2, 5)


def test_negative_and_zero_eigenvalues():
    d = torch.tensor([2.0, -1.0, 0.0, 3.0], dtype=torch.float64)
    Q = Rotation.random(4, seed=0, dtype=torch.float64)
    H = SymmetricOperator(Q, d)
    assert float(H.trace()) == 4.0
    for call in (H.inverse, lambda: H.solve(torch.ones(4, dtype=torch.float64))):
        with pytest.raises(
            ValueError, match="eigenvalues: expected none of them zero, got 1 of 4 zero; try `epsilon=1e-6`"
        ):
            call()
    with pytest.raises(ValueError, match="sample: expected eigenvalues ≥ 0, got 1 negative"):
        H.sample(2, seed=0)
    assert H.sample(2, seed=0, epsilon=0.0).isfinite().all()
    floored = torch.tensor([2.0, 0.1, 0.1, 3.0], dtype=torch.float64)
    torch.testing.assert_close(H.inverse(epsilon=0.1).eigenvalues, 1 / floored)
    torch.testing.assert_close(H.logdet(epsilon=0.1), floored.log().sum())
    with pytest.raises(ValueError, match="epsilon: expected a number > 0, got 0"):
        H.inverse(epsilon=0)


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        ([2.0, 3.0], np.log(6)),
        ([-2.0, -3.0], np.log(6)),
        ([-2.0, 3.0], np.nan),
        ([0.0, 3.0], -np.inf),
        ([0.0, -3.0], -np.inf),
    ],
)
def test_logdet_as_torchs(d, expected):
    H = SymmetricOperator(Rotation.identity(2), torch.tensor(d))
    np.testing.assert_allclose(float(H.logdet()), expected, rtol=1e-6)
    np.testing.assert_allclose(float(torch.logdet(torch.diag(torch.tensor(d)))), expected, rtol=1e-6)


def test_everything_has_gradients():
    angles = random_angles(Butterfly(5)).requires_grad_()
    d = (normal(5).abs() + 1).requires_grad_()
    b = normal(5)

    def results(angles, d):
        H = SymmetricOperator(Rotation(Butterfly(5), angles), d)
        return (
            H.solve(b),
            H.logdet(),
            H.trace(),
            H.diagonal(),
            H.to_dense(),
            H.function(torch.exp) @ b,
            H.quadratic_form(b),
        )

    assert torch.autograd.gradcheck(results, (angles, d))
    SymmetricOperator(Rotation(Butterfly(5), angles), d).sample(3, seed=0).sum().backward()
    assert d.grad is not None


def test_the_transpose_is_the_operator_itself():
    H, _ = build("butterfly-5")
    assert H.T is H


@pytest.mark.parametrize("n", [1, 64, 100])
def test_multiply_adds(n):
    wiring = Butterfly(n)
    K = wiring.n_rotations
    H = SymmetricOperator(Rotation(wiring, torch.full((K,), 0.3)), torch.ones(n))
    assert H.multiply_adds == 4 * K + n
    with use_backend("reference"):
        assert H.multiply_adds == 8 * K + n


def test_a_batch_of_eigenvalues_on_one_rotation():
    Q = Rotation.random(6, seed=0, dtype=torch.float64)
    d = normal(3, 6)
    H = SymmetricOperator(Q, d)
    assert H.shape == (3, 6, 6)
    for k in range(3):
        torch.testing.assert_close(H.to_dense()[k], SymmetricOperator(Q, d[k]).to_dense())
    torch.testing.assert_close(H.diagonal(), H.to_dense().diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(
        H.logdet(), d.abs().log().sum(-1).where((d < 0).sum(-1) % 2 == 0, torch.nan), equal_nan=True
    )


def test_numbers_shift_and_scale():
    H, dense = build("butterfly-5")
    c, eye = 2.5, torch.eye(H.n, dtype=torch.float64)
    for found, expected in [
        (H + c, dense + c * eye),
        (c + H, dense + c * eye),
        (H - c, dense - c * eye),
        (c - H, c * eye - dense),
        (c * H, c * dense),
        (H * np.float64(c), c * dense),
        (H / c, dense / c),
        (-H, -dense),
    ]:
        torch.testing.assert_close(found.to_dense(), expected)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (H * scale).trace().backward()
    torch.testing.assert_close(scale.grad, H.trace())
    for other in ("2", True, None):
        with pytest.raises(TypeError, match="unsupported operand"):
            H + other
    for other in (torch.ones(2), H.to_dense(), H.to_numpy(), H):
        for add in (operator.add, operator.sub, lambda a, b: b + a, lambda a, b: b - a):
            with pytest.raises(ArgumentError, match=r"expected a number, .* of shape .*; fit the sum"):
                add(H, other)
        with pytest.raises(ArgumentError, match=r"expected a number, .*; for a product try @"):
            H * other
