"""The specification against oracles that share no code with it."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from cases import FEW, WIRINGS, dense_rotation, normal, random_angles
from scipy.spatial.transform import Rotation as Turn

from swallowtail import Butterfly, Pairs
from swallowtail.kernels import reference


def matrix(wiring, angles, transpose=False):
    """Q by its columns."""
    eye = torch.eye(wiring.n, dtype=angles.dtype)[None]
    return reference.rotate(wiring, angles[None], eye, transpose)[0].mT


def papers_matrices(theta):
    """Q₁, Q₂ and Q₃ for n = 8 as the paper prints them; θ₁ … θ₁₂ are ``theta[1:]``."""
    c, s = np.cos(theta), np.sin(theta)
    Q1 = [
        [c[1], 0, 0, 0, -s[1], 0, 0, 0],
        [0, c[2], 0, 0, 0, -s[2], 0, 0],
        [0, 0, c[3], 0, 0, 0, -s[3], 0],
        [0, 0, 0, c[4], 0, 0, 0, -s[4]],
        [s[1], 0, 0, 0, c[1], 0, 0, 0],
        [0, s[2], 0, 0, 0, c[2], 0, 0],
        [0, 0, s[3], 0, 0, 0, c[3], 0],
        [0, 0, 0, s[4], 0, 0, 0, c[4]],
    ]
    Q2 = [
        [c[5], 0, -s[5], 0, 0, 0, 0, 0],
        [0, c[6], 0, -s[6], 0, 0, 0, 0],
        [s[5], 0, c[5], 0, 0, 0, 0, 0],
        [0, s[6], 0, c[6], 0, 0, 0, 0],
        [0, 0, 0, 0, c[7], 0, -s[7], 0],
        [0, 0, 0, 0, 0, c[8], 0, -s[8]],
        [0, 0, 0, 0, s[7], 0, c[7], 0],
        [0, 0, 0, 0, 0, s[8], 0, c[8]],
    ]
    Q3 = [
        [c[9], -s[9], 0, 0, 0, 0, 0, 0],
        [s[9], c[9], 0, 0, 0, 0, 0, 0],
        [0, 0, c[10], -s[10], 0, 0, 0, 0],
        [0, 0, s[10], c[10], 0, 0, 0, 0],
        [0, 0, 0, 0, c[11], -s[11], 0, 0],
        [0, 0, 0, 0, s[11], c[11], 0, 0],
        [0, 0, 0, 0, 0, 0, c[12], -s[12]],
        [0, 0, 0, 0, 0, 0, s[12], c[12]],
    ]
    return np.array(Q1), np.array(Q2), np.array(Q3)


def test_papers_matrices_for_n_8():
    theta = np.random.default_rng(0).uniform(-math.pi, math.pi, 13)  # theta[0] is not used
    Q1, Q2, Q3 = papers_matrices(theta)
    angles = torch.from_numpy(theta[1:])
    Q = matrix(Butterfly(8), angles).numpy()
    np.testing.assert_allclose(Q, Q1 @ Q2 @ Q3, rtol=0, atol=1e-15)
    np.testing.assert_allclose(matrix(Butterfly(8), angles, transpose=True).numpy(), Q.T, rtol=0, atol=1e-15)
    twice = matrix(Butterfly(8, 2), torch.cat([angles, angles.flip(0)])).numpy()
    P1, P2, P3 = papers_matrices(np.concatenate([[0], theta[:0:-1]]))
    np.testing.assert_allclose(twice, Q1 @ Q2 @ Q3 @ P1 @ P2 @ P3, rtol=0, atol=1e-15)
    back = matrix(Butterfly(8, reverse=True), torch.cat([angles[8:], angles[4:8], angles[:4]])).numpy()
    np.testing.assert_allclose(back, Q3 @ Q2 @ Q1, rtol=0, atol=1e-15)


@pytest.mark.parametrize("k", range(8))
def test_quarter_pi_is_hadamard(k):
    n = 2**k
    wiring = Butterfly(n)
    Q = matrix(wiring, torch.full((wiring.n_rotations,), math.pi / 4, dtype=torch.float64)).numpy()
    signs = np.array([(-1) ** bin(j).count("1") for j in range(n)])
    np.testing.assert_allclose(Q * math.sqrt(n), scipy.linalg.hadamard(n) * signs, atol=1e-13)


def test_right_angles_permute_with_signs():
    """A turn by 90° sends e_i to e_j and e_j to −e_i: follow each unit vector by hand."""
    wiring = WIRINGS["pairs-17"]
    Q = matrix(wiring, torch.full((wiring.n_rotations,), math.pi / 2, dtype=torch.float64)).numpy()
    expected = np.zeros((17, 17))
    for start in range(17):
        place, sign = start, 1
        for layer in reversed(list(wiring.layers())):
            for i, j in layer.tolist():
                if place == i:
                    place = j
                    break
                if place == j:
                    place, sign = i, -sign
                    break
        expected[place, start] = sign
    np.testing.assert_allclose(Q, expected, atol=1e-14)


@pytest.mark.parametrize("axes", list(itertools.product("xyz", repeat=3)), ids="".join)
def test_three_dimensions_are_scipys_rotations(axes):
    """About x the pair is (y, z), about y (z, x), about z (x, y); Q = Q₁Q₂Q₃ turns about the third axis first."""
    pair = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}
    angles = random_angles(Pairs(3, [[(0, 1)]] * 3))
    Q = matrix(Pairs(3, [[pair[axis]] for axis in axes]), angles).numpy()
    turns = [Turn.from_euler(axis, float(theta)) for axis, theta in zip(axes, angles, strict=True)]
    np.testing.assert_allclose(Q, (turns[0] * turns[1] * turns[2]).as_matrix(), atol=1e-15)


@pytest.mark.parametrize("name", [name for name in WIRINGS if WIRINGS[name].n <= 100])
def test_equals_the_product_of_dense_layers(name):
    wiring = WIRINGS[name]
    angles = random_angles(wiring)
    expected = dense_rotation(wiring, angles)
    torch.testing.assert_close(matrix(wiring, angles), expected, rtol=0, atol=1e-14)
    x, d = normal(1, 6, wiring.n), normal(1, wiring.n, seed=5)
    H = expected @ torch.diag(d[0]) @ expected.T
    torch.testing.assert_close(
        reference.symmetric(wiring, angles[None], d, x)[0], x[0] @ H, rtol=0, atol=1e-13
    )
    torch.testing.assert_close(
        reference.quadratic(wiring, angles[None], d, x)[0],
        torch.einsum("mi,ij,mj->m", x[0], H, x[0]),
        rtol=0,
        atol=1e-12,
    )


def test_each_rotation_of_a_batch_has_its_own_angles():
    wiring = WIRINGS["pairs-17"]
    angles, x = random_angles(wiring, 3), normal(3, 4, 17)
    for transpose in (False, True):
        y = reference.rotate(wiring, angles, x, transpose)
        for b in range(3):
            Q = dense_rotation(wiring, angles[b])
            torch.testing.assert_close(y[b], x[b] @ (Q if transpose else Q.T), rtol=0, atol=1e-14)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("name", FEW)
def test_gradients_are_the_finite_differences(name, transpose):
    """Of L = ⟨g, Q x⟩, in float64 with central differences."""
    wiring = WIRINGS[name]
    angles, x, g = random_angles(wiring, 2), normal(2, 3, wiring.n), normal(2, 3, wiring.n, seed=7)
    y = reference.rotate(wiring, angles, x, transpose)
    grad_x, grad_angles = reference.rotate_backward(wiring, angles, y, g, transpose)

    def loss(angles, x):
        return float((g * reference.rotate(wiring, angles, x, transpose)).sum())

    h = 1e-6
    rng = np.random.default_rng(0)
    for gradient, of in ((grad_angles, "angles"), (grad_x, "x")):
        for flat in rng.permutation(gradient.numel())[:12].tolist():
            step = torch.zeros(gradient.numel(), dtype=torch.float64)
            step[flat] = h
            step = step.reshape(gradient.shape)
            up, down = ((angles + e, x) if of == "angles" else (angles, x + e) for e in (step, -step))
            difference = (loss(*up) - loss(*down)) / (2 * h)
            assert abs(difference - float(gradient.flatten()[flat])) < 1e-7, (of, flat)


@pytest.mark.parametrize("wiring", [Butterfly(1), Pairs(3, []), Pairs(3, [[]]), Butterfly(3)], ids=repr)
def test_results_never_share_memory_with_arguments(wiring):
    angles, x, g = random_angles(wiring, 1), normal(1, 2, wiring.n), normal(1, 2, wiring.n, seed=2)
    grad_x, _ = reference.rotate_backward(wiring, angles, x, g)
    for result in (reference.rotate(wiring, angles, x), reference.rotate(wiring, angles, x, True), grad_x):
        assert result.data_ptr() not in (x.data_ptr(), g.data_ptr())


def test_half_precision_is_storage_only():
    """Rounded once at the end: the float32 result, rounded."""
    wiring = Butterfly(64, 4)
    angles, x = random_angles(wiring, 1, dtype=torch.float32), normal(1, 5, 64, dtype=torch.bfloat16)
    y = reference.rotate(wiring, angles, x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, reference.rotate(wiring, angles, x.float()).bfloat16())


def test_multiply_adds_as_the_paper_counts():
    assert reference.multiply_adds(Butterfly(1024)) == 2 * 1024 * 10  # 2 n lg n
