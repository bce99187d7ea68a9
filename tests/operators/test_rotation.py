"""Rotation: what it has beyond the contract."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from cases import WIRINGS, normal, random_angles

from swallowtail import Butterfly, Pairs, Rotation, SymmetricOperator, use_backend


def test_identity_random_and_hadamard():
    x = normal(5, 8, dtype=torch.float32)
    assert torch.equal(Rotation.identity(8)(x), x)
    H = Rotation.hadamard(8, dtype=torch.float64).to_dense().numpy()
    signs = np.array([(-1) ** bin(j).count("1") for j in range(8)])
    np.testing.assert_allclose(H, scipy.linalg.hadamard(8) * signs / math.sqrt(8), atol=1e-15)
    Q = Rotation.random(100, depth=2, seed=0)
    assert Q.n_rotations == Butterfly(100, 2).n_rotations
    assert Q.angles.abs().max() <= math.pi
    assert torch.equal(Q.angles, Rotation.random(100, depth=2, seed=0).angles)
    assert not torch.equal(Rotation.random(100).angles, Rotation.random(100).angles)


def test_a_seed_means_the_same_rotation_in_every_dtype():
    double = Rotation.random(32, seed=7, dtype=torch.float64).angles
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert torch.equal(Rotation.random(32, seed=7, dtype=dtype).angles, double.to(dtype))
    generator = torch.Generator().manual_seed(7)
    assert torch.equal(Rotation.random(32, generator=generator, dtype=torch.float64).angles, double)
    assert not torch.equal(Rotation.random(32, generator=generator, dtype=torch.float64).angles, double)


def test_default_dtype_is_torchs():
    assert Rotation.random(4, seed=0).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert Rotation.random(4, seed=0).dtype == torch.float64
        assert Rotation(Butterfly(4), [1, 2, 3, 4]).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["butterfly-5", "butterfly-64-deep", "butterfly-65", "pairs-17", "pairs-3"])
def test_determinant_is_one_and_the_transpose_inverts(name):
    Q = Rotation(WIRINGS[name], random_angles(WIRINGS[name]))
    assert abs(float(torch.linalg.det(Q.to_dense())) - 1) < 1e-12
    x = normal(4, Q.n)
    torch.testing.assert_close(Q.T(Q(x)), x)
    torch.testing.assert_close(Q.T.to_dense() @ Q.to_dense(), torch.eye(Q.n, dtype=torch.float64))


def test_the_transpose_is_kept():
    Q = Rotation.random(16, seed=0)
    T = Q.T
    assert Q.T is T
    assert T.T is Q
    x = normal(16, dtype=torch.float32)
    torch.testing.assert_close(T(Q(x)), x)


def test_the_transpose_follows_angles_that_are_trained():
    angles = random_angles(Butterfly(8)).requires_grad_()
    Q, x = Rotation(Butterfly(8), angles), normal(8)
    for _ in range(3):
        torch.testing.assert_close(Q.T(Q(x)), x)
        angles.data.add_(0.25)


def test_the_transpose_has_gradients():
    angles = random_angles(Butterfly(8)).requires_grad_()
    Q, x = Rotation(Butterfly(8), angles), normal(8)
    for _ in range(2):  # a second graph, after the first one is spent
        angles.grad = None
        (Q.T @ x)[0].backward()
        assert float(angles.grad.norm()) > 0.1


def test_an_operator_has_angles_of_its_own():
    source = random_angles(Butterfly(8)).numpy()
    angles, x = torch.from_numpy(source), normal(8)
    Q, d = Rotation(Butterfly(8), angles), torch.ones(8, dtype=torch.float64)
    H = SymmetricOperator(Q, d)
    before, H_before = Q @ x, H @ x
    source[:] = 0
    d.data.add_(1)
    Q.angles.zero_()
    H.eigenvalues.data.zero_()
    assert torch.equal(Q @ x, before)
    assert torch.equal(H @ x, H_before)
    with pytest.raises(AttributeError):
        Q.angles = angles


@pytest.mark.parametrize("edit", ["optimiser", "data", "frozen"])
def test_an_operator_shares_angles_that_require_gradients(edit):
    angles = random_angles(Butterfly(8)).requires_grad_()
    Q, x = Rotation(Butterfly(8), angles), normal(8)
    (Q @ x)[0].backward()
    assert Q.angles is angles
    assert angles.grad.abs().max() > 0
    if edit == "optimiser":
        torch.optim.SGD([angles], 0.3).step()
    elif edit == "data":
        angles.data.add_(0.3)
    else:
        angles.requires_grad_(False).numpy()[:] += 0.3
    torch.testing.assert_close(Q @ x, Rotation(Butterfly(8), angles.detach().clone()) @ x, rtol=0, atol=0)


def test_one_rotation_by_hand():
    Q = Rotation(Pairs(3, [[(2, 0)]]), torch.tensor([math.pi / 6], dtype=torch.float64))
    half, root = 0.5, math.sqrt(3) / 2  # e₂ ↦ cos e₂ + sin e₀ and e₀ ↦ −sin e₂ + cos e₀
    expected = torch.tensor([[root, 0, half], [0, 1, 0], [-half, 0, root]], dtype=torch.float64)
    torch.testing.assert_close(Q.to_dense(), expected)


@pytest.mark.parametrize("n", [1, 2, 64, 100])
def test_multiply_adds(n):
    wiring = Butterfly(n)
    K = wiring.n_rotations
    Q = Rotation(wiring, torch.full((K,), 0.3))
    assert Q.multiply_adds == 2 * K + n
    assert Rotation(wiring, torch.full((2, 3, K), 0.3)).multiply_adds == 2 * K + n
    assert Rotation(wiring, torch.full((0, K), 0.3)).multiply_adds == 0
    assert Q.to(dtype=torch.bfloat16).multiply_adds == 2 * K + n
    with use_backend("reference"):
        assert Q.multiply_adds == 4 * K


def test_grouped_is_the_same_rotation():
    wiring = WIRINGS["pairs-64"]
    Q = Rotation(wiring, random_angles(wiring).expand(2, -1))
    grouped = Q.grouped(8)
    assert grouped.wiring.size <= 8
    assert torch.allclose(grouped.to_dense(), Q.to_dense(), atol=1e-14)


def test_repr():
    assert repr(Rotation.identity(8)) == (
        "Rotation(Butterfly(n=8, depth=1): 3 layers, 12 rotations; torch.float32, cpu)"
    )
    assert "batch (2, 3)" in repr(Rotation(Butterfly(2), torch.zeros(2, 3, 1)))


def test_large_sizes_in_several_passes():
    Q = Rotation.random(2**16, seed=0)
    x = normal(2, 2**16, dtype=torch.float32)
    y = Q(x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(Q.T(y), x, rtol=0, atol=1e-5)
    with use_backend("reference"):
        torch.testing.assert_close(Q(x), y, rtol=0, atol=1e-5)


def test_a_transpose_is_first_asked_for_by_a_compiler():
    Q = Rotation(Pairs(4, [[(0, 3), (1, 2)], [(0, 1)]]), torch.rand(3))
    x = torch.rand(2, 4)
    compiled = torch.compile(lambda z: Q.T.T(Q.T(z)), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), x)
    torch.testing.assert_close(Q.T.T(Q.T(x)), x)
    assert Q.T.T is Q


def test_arrays_of_whole_numbers_meet_bfloat16():
    Q = Rotation.random(8, seed=0, dtype=torch.bfloat16)
    H = SymmetricOperator(Q, torch.linspace(1, 2, 8, dtype=torch.bfloat16))
    for result in (Q(np.ones(8, int)), H @ range(8), H.quadratic_form(np.ones(8, int)), H.solve(range(8))):
        assert result.dtype == np.float32
        assert np.isfinite(result).all()


def test_a_sparse_matrix_from_the_left():
    Q, S = Rotation.random(8, seed=0, dtype=torch.float64), sp.random_array((5, 8), density=0.5, rng=0)
    assert Q.ndim == 2
    np.testing.assert_allclose(S @ Q, S.toarray() @ Q.to_numpy(), atol=1e-14)


def test_indices_in_any_order_of_bytes():
    Q, rows = Rotation.random(8, seed=0), np.arange(8)[::-1]
    expected = Q.to_dense()[torch.arange(7, -1, -1), 0]
    for index in (rows, rows.astype(">i4")):
        torch.testing.assert_close(Q[index, 0], expected)


def test_vmap_goes_over_angles_and_eigenvalues():
    W, x = Butterfly(6), normal(3, 6)
    angles, d = normal(4, W.n_rotations, seed=1), normal(4, 6, seed=2)

    def product(angles, d):
        return SymmetricOperator(Rotation(W, angles), d)(x)

    one_by_one = torch.stack([product(*pair) for pair in zip(angles, d, strict=True)])
    torch.testing.assert_close(torch.func.vmap(product)(angles, d), one_by_one)
    slope = torch.func.vmap(torch.func.grad(lambda a, d: product(a, d).pow(3).sum()))(angles, d)
    assert slope.shape == angles.shape
