"""The CPU back end against the reference in float64: every function and gradient, wiring, dtype and batch."""

import math

import numpy as np
import pytest
import torch
from backend_contract import inputs
from cases import DTYPES, HALF, WIRINGS, arithmetic, assert_close, normal, random_angles, tolerance
from cpu_checks import EVERY, IN_EVERY_DTYPE, IN_WIDE_DTYPES, ROWS, SOME, check_all
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu


@EVERY
@IN_EVERY_DTYPE
def test_equals_the_reference(name, dtype):
    check_all(WIRINGS[name], dtype, B=1, m=5)


@SOME
@ROWS
@pytest.mark.parametrize("B", [1, 2])
@IN_WIDE_DTYPES
def test_any_number_of_rows_and_rotations(name, dtype, B, m):
    check_all(WIRINGS[name], dtype, B, m)


@SOME
@IN_WIDE_DTYPES
def test_inputs_need_not_be_contiguous(name, dtype):
    wiring = WIRINGS[name]
    angles, d, x, g = inputs(wiring, dtype, B=2, m=4)
    expected = [
        cpu.rotate(wiring, angles, x), cpu.symmetric(wiring, angles, d, x), cpu.quadratic(wiring, angles, d, x),
        *cpu.rotate_backward(wiring, angles, x, g),
    ]  # fmt: skip

    def spread(t):  # the same numbers, every other one of a larger tensor
        return torch.stack([t, torch.full_like(t, torch.nan)], dim=-1).flatten(-2)[..., ::2]

    def turned(t):
        return t.mT.contiguous().mT if t.ndim == 3 else spread(t)

    for change in (spread, turned):
        a, e, z, h = (change(t) for t in (angles, d, x, g))
        actual = [
            cpu.rotate(wiring, a, z), cpu.symmetric(wiring, a, e, z), cpu.quadratic(wiring, a, e, z),
            *cpu.rotate_backward(wiring, a, z, h),
        ]  # fmt: skip
        assert all(torch.equal(p, q) for p, q in zip(actual, expected, strict=True))
    row = x[:1, :1].expand(2, 4, wiring.n)
    assert torch.equal(cpu.rotate(wiring, angles, row), cpu.rotate(wiring, angles, row.clone()))


@SOME
def test_prepared_coefficients_give_the_same_bits(name):
    wiring = WIRINGS[name]
    angles, d, x, _ = inputs(wiring, torch.float32, B=2)
    rotation = cpu.prepare(wiring, angles)
    with_d = cpu.prepare(wiring, angles, d, rotation=rotation)
    assert torch.equal(cpu.rotate(wiring, angles, x, prepared=rotation), cpu.rotate(wiring, angles, x))
    assert torch.equal(
        cpu.symmetric(wiring, angles, d, x, prepared=with_d), cpu.symmetric(wiring, angles, d, x)
    )
    assert torch.equal(
        cpu.quadratic(wiring, angles, d, x, prepared=with_d), cpu.quadratic(wiring, angles, d, x)
    )


@SOME
@pytest.mark.parametrize("action", ["from_basis", "to_basis", "symmetric"])
def test_a_bound_kernel_gives_the_same_bits(name, action):
    wiring = WIRINGS[name]
    angles, d, x, _ = inputs(wiring, torch.float32, m=7)
    run = cpu.bind(wiring, action, cpu.prepare(wiring, angles, d))

    def expected(x):
        if action == "symmetric":
            return cpu.symmetric(wiring, angles, d, x)
        return cpu.rotate(wiring, angles, x, transpose=action == "to_basis")

    assert torch.equal(run(x[0]), expected(x)[0])
    assert torch.equal(run(x[0, 0]), expected(x[:, :1])[0, 0])


@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_float32_error_at_1024(depth, scale):
    """The bar: relative error ≤ 1e-7·√layers against float64."""
    wiring = Butterfly(1024, depth)
    angles = scale * random_angles(wiring, 1, dtype=torch.float32)
    x, d = normal(1, 64, 1024, dtype=torch.float32), normal(1, 1024, dtype=torch.float32, seed=9)
    for transpose in (False, True):
        y = cpu.rotate(wiring, angles, x, transpose)
        exact = reference.rotate(wiring, angles.double(), x.double(), transpose)
        assert_close(y, exact, 1e-7 * math.sqrt(wiring.n_layers))
    H = cpu.symmetric(wiring, angles, d, x)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert_close(H, exact, 1e-7 * math.sqrt(2 * wiring.n_layers))


@pytest.mark.parametrize("name", ["butterfly-64-deep", "butterfly-100-deep", "butterfly-784", "pairs-100"])
@IN_EVERY_DTYPE
def test_q_transposed_q_is_the_identity(name, dtype):
    wiring = WIRINGS[name]
    angles = random_angles(wiring, 1, dtype=arithmetic(dtype))
    eye = torch.eye(wiring.n, dtype=dtype)[None]
    Q = cpu.rotate(wiring, angles, eye)[0].double()
    worst = float(torch.linalg.matrix_norm(Q @ Q.T - torch.eye(wiring.n, dtype=torch.float64), 2))
    # An entry is off by a rounding of its own size, so the matrix is off by about eps·√n.
    own = torch.finfo(dtype).eps * math.sqrt(wiring.n) if dtype in HALF else 0.0
    assert worst <= 2 * (tolerance(arithmetic(dtype), 2 * wiring.n_layers) * 2 + own), worst
    again = cpu.rotate(wiring, angles, cpu.rotate(wiring, angles, eye), transpose=True)
    assert_close(again, eye, 2 * tolerance(dtype, 2 * wiring.n_layers))


@some.composite
def problems(draw):
    n, seed = draw(some.integers(1, 200)), draw(some.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    if draw(some.booleans()):
        wiring = Butterfly(n, draw(some.integers(1, 4)), reverse=draw(some.booleans()))
    else:
        sizes = draw(some.lists(some.integers(0, n // 2), max_size=6))
        wiring = Pairs(n, [rng.permutation(n)[: 2 * size].reshape(-1, 2) for size in sizes])
    return (
        wiring,
        draw(some.sampled_from(DTYPES)),
        draw(some.integers(1, 3)),
        draw(some.integers(0, 40)),
        seed,
    )


@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_property_equal_to_the_reference(problem):
    wiring, dtype, B, m, _ = problem
    check_all(wiring, dtype, B, m)


@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_property_rotations_keep_norms_and_are_undone(problem):
    wiring, dtype, B, m, seed = problem
    angles = random_angles(wiring, B, dtype=arithmetic(dtype), seed=seed)
    x = normal(B, m, wiring.n, dtype=dtype, seed=seed)
    y = cpu.rotate(wiring, angles, x)
    bound = tolerance(dtype, wiring.n_layers)
    assert_close(y.double().norm(dim=-1), x.double().norm(dim=-1), 2 * bound)
    assert_close(cpu.rotate(wiring, angles, y, transpose=True), x, 3 * bound)


@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_property_adjoint_dot_test(problem):
    wiring, dtype, B, m, seed = problem
    angles, d = (
        random_angles(wiring, B, dtype=arithmetic(dtype)),
        normal(B, wiring.n, dtype=arithmetic(dtype)),
    )
    x, y = (normal(B, m, wiring.n, dtype=dtype, seed=seed + k) for k in (1, 2))
    sizes = x.double().norm(dim=-1) * y.double().norm(dim=-1)
    bound = 2 * tolerance(dtype, 2 * wiring.n_layers)

    def dot(a, b):
        return (a.double() * b.double()).sum(-1)

    gap = dot(cpu.rotate(wiring, angles, x), y) - dot(x, cpu.rotate(wiring, angles, y, transpose=True))
    assert (gap.abs() <= bound * sizes).all()
    gap = dot(cpu.symmetric(wiring, angles, d, x), y) - dot(x, cpu.symmetric(wiring, angles, d, y))
    assert (gap.abs() <= bound * sizes * d.double().abs().amax(-1, keepdim=True)).all()
