"""The relaxation of Algorithm 1: gradients against autograd, projection against the nearest rotation."""

import numpy as np
import pytest
import torch
from scipy.linalg import svd

from swallowtail.fitting.core import relaxed as _relaxed
from swallowtail.metrics import column_angles
from swallowtail.wiring import Butterfly, Pairs

WIRINGS = [Butterfly(8), Butterfly(5, 2), Pairs(6, [[(4, 1), (0, 2)], [(1, 0)], [(5, 3), (2, 1)]])]


def relaxed_product(wiring, blocks, x, transpose):
    """Q̃ x or Q̃ᵀ x with free blocks [[a, b], [c, d]]: the multilayer linear network, in torch."""
    layers = list(zip(wiring.layers(), torch.split(blocks, np.diff(wiring.offsets).tolist()), strict=True))
    for pairs, part in layers if transpose else reversed(layers):
        matrix = torch.eye(wiring.n, dtype=x.dtype)
        i, j = torch.as_tensor(pairs).T
        diagonal = torch.zeros_like(matrix).index_put(
            (torch.cat([i, j]),) * 2, torch.ones(2 * len(i), dtype=x.dtype)
        )
        matrix = (matrix - diagonal).index_put(
            (torch.cat([i, i, j, j]), torch.cat([i, j, i, j])), part.T.reshape(-1), accumulate=True
        )
        x = (matrix.T if transpose else matrix) @ x
    return x


@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
@pytest.mark.parametrize("rotation", [False, True])
@pytest.mark.parametrize("b", [1, 3])
def test_gradient_of_the_extended_parameters_is_autograds(wiring, rotation, b):
    n, K = wiring.n, wiring.n_rotations
    rng = np.random.default_rng(0)
    theta, d = rng.uniform(-np.pi, np.pi, K), rng.standard_normal(n)
    x, y = rng.standard_normal((2, n, b))
    c, s = np.cos(theta), np.sin(theta)
    blocks = torch.tensor(np.stack([c, -s, s, c], 1), requires_grad=True)
    diagonal = torch.tensor(d, requires_grad=True)
    out = torch.from_numpy(x)
    if not rotation:
        out = diagonal[:, None] * relaxed_product(wiring, blocks, out, True)
    out = relaxed_product(wiring, blocks, out, False)
    expected = ((out - torch.from_numpy(y)) ** 2).sum() / b
    expected.backward()

    gradient, gradient_d, work = np.empty((K, 4)), np.zeros(n), np.empty((2, n, b))
    pairs, x_kept = _relaxed.unsigned_pairs(wiring), x.copy()
    loss, angle = _relaxed.extended_gradient(pairs, c, s, d, x, y, rotation, gradient, gradient_d, *work)
    assert loss == pytest.approx(expected.item())
    assert np.degrees(angle) == pytest.approx(column_angles(out.detach().numpy(), y).mean())
    np.testing.assert_allclose(gradient, blocks.grad, atol=1e-12)
    if not rotation:
        np.testing.assert_allclose(gradient_d, diagonal.grad, atol=1e-12)
    np.testing.assert_allclose(x, x_kept, atol=1e-13)


def test_projection_is_the_nearest_rotation():
    blocks = np.random.default_rng(0).standard_normal((200, 4))
    cosines, sines = np.ones(200), np.zeros(200)
    _relaxed.project(blocks, cosines, sines)
    for block, c, s in zip(blocks, cosines, sines, strict=True):
        U, _, Vt = svd(block.reshape(2, 2))  # nearest rotation: U diag(1, det UVᵀ) Vᵀ
        nearest = U @ np.diag([1.0, np.linalg.det(U @ Vt)]) @ Vt
        np.testing.assert_allclose([[c, -s], [s, c]], nearest, atol=1e-12)


def test_projection_keeps_the_old_rotation_where_all_are_equally_near():
    cosines, sines = np.array([0.6]), np.array([0.8])
    _relaxed.project(np.array([[1.0, 2.0, 2.0, -1.0]]), cosines, sines)  # a + d = 0, b = c
    assert (cosines[0], sines[0]) == (0.6, 0.8)
