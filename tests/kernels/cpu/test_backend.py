"""The CPU kernels against the reference in float64: every function and gradient, wiring, dtype and batch."""

import concurrent.futures
import math
import os
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from cases import DTYPES, FEW, HALF, WIDE, WIRINGS, arithmetic, assert_close, normal, random_angles, tolerance
from cpu_checks import environment
from hypothesis import given, settings
from hypothesis import strategies as some

from swallowtail import Butterfly, Pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import launch
from swallowtail.kernels.cpu import openmp as _openmp
from swallowtail.kernels.cpu import pairs as cpu_pairs
from swallowtail.kernels.cpu import threads as _threads
from swallowtail.kernels.cpu.codegen import shapes as simd

EVERY = pytest.mark.parametrize("name", WIRINGS)
SOME = pytest.mark.parametrize("name", FEW)
ROWS = pytest.mark.parametrize("m", [0, 1, 2, 3, 33])
IN_EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)
IN_WIDE_DTYPES = pytest.mark.parametrize("dtype", WIDE, ids=str)


def inputs(wiring, dtype, B=1, m=5):
    """Angles and eigenvalues in the dtype of arithmetic, x and a cotangent in that of storage."""
    wide = arithmetic(dtype)
    return (
        random_angles(wiring, B, dtype=wide),
        normal(B, wiring.n, dtype=wide, seed=2),
        normal(B, m, wiring.n, dtype=dtype, seed=3),
        normal(B, m, wiring.n, dtype=dtype, seed=4),
    )


def doubles(*tensors):
    return [t.double() for t in tensors]


def check_all(wiring, dtype, B, m):
    """Every function of the back end, and both its gradients, against the reference in float64."""
    angles, d, x, g = inputs(wiring, dtype, B, m)
    angles64, d64, x64, g64 = doubles(angles, d, x, g)
    layers, what = wiring.n_layers, f"{wiring!r}, {dtype}, B={B}, m={m}"
    for transpose in (False, True):
        y = cpu.rotate(wiring, angles, x, transpose)
        assert y.dtype == dtype
        y64 = reference.rotate(wiring, angles64, x64, transpose)
        assert_close(y, y64, tolerance(dtype, layers), f"rotate, transpose={transpose}: {what}")
        stored = y64.to(dtype)
        grad_x, grad_angles = cpu.rotate_backward(wiring, angles, stored, g, transpose)
        expected_x, expected_angles = reference.rotate_backward(
            wiring, angles64, stored.double(), g64, transpose
        )
        assert (grad_x.dtype, grad_angles.dtype) == (dtype, angles.dtype)
        assert_close(grad_x, expected_x, tolerance(dtype, layers), f"grad_x, transpose={transpose}: {what}")
        # A wedge product of m rows is a sum of terms of size |y||g|, which may cancel.
        size = float((stored.double().norm(dim=-1) * g64.norm(dim=-1)).sum()) if m else 0.0
        worst = float((grad_angles.double() - expected_angles).abs().max()) if angles.numel() else 0.0
        assert worst <= tolerance(arithmetic(dtype), layers) * size, (
            f"grad_angles, transpose={transpose}: {what}"
        )
    H = cpu.symmetric(wiring, angles, d, x)
    assert H.dtype == dtype
    assert_close(
        H, reference.symmetric(wiring, angles64, d64, x64), tolerance(dtype, 2 * layers), f"symmetric: {what}"
    )
    q = cpu.quadratic(wiring, angles, d, x)
    assert q.dtype == dtype
    assert q.shape == (B, m)
    expected = reference.quadratic(wiring, angles64, d64, x64)
    size = reference.quadratic(wiring, angles64, d64.abs(), x64)  # without the cancellation of signs
    # Twice the tolerance of w: it is squared. A narrow dtype adds its own rounding of the result.
    bound = 2 * tolerance(arithmetic(dtype), layers) * size
    if dtype in HALF:
        spacing = torch.finfo(dtype).eps * torch.finfo(dtype).smallest_normal  # of subnormal numbers
        bound = bound + torch.finfo(dtype).eps * expected.abs() + spacing
    assert ((q.double() - expected).abs() <= bound).all(), f"quadratic: {what}"


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


@pytest.mark.parametrize("m", [15, 16, 17, 31, 32, 65, 600])
@pytest.mark.parametrize("name", ["butterfly-17", "butterfly-64", "pairs-17", "pairs-64", "pairs-3"])
def test_rows_round_the_width_of_a_tile(name, m):
    check_all(WIRINGS[name], torch.float32, 1, m)


@pytest.mark.parametrize("n", range(1, 40))
@IN_WIDE_DTYPES
def test_sizes_round_the_width_of_a_register(n, dtype):
    check_all(Butterfly(n), dtype, 1, 3)
    rng = np.random.default_rng(n)
    pairs = Pairs(n, [rng.permutation(n)[: n // 2 * 2].reshape(-1, 2) for _ in range(4)])
    check_all(pairs, dtype, 1, 35)


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


# Fast Givens


def nearly_right(n_rotations, generator):
    """Angles within 1e-8 … 1e-1 of 90°."""
    distance = 10.0 ** -(1 + 7 * torch.rand(n_rotations, generator=generator, dtype=torch.float64))
    sign = torch.randint(0, 2, (n_rotations,), generator=generator) * 2 - 1
    return sign * (math.pi / 2 - distance)


def mixed(n_rotations, generator):
    kinds = [torch.zeros(n_rotations), torch.full((n_rotations,), math.pi / 2), nearly_right(n_rotations, generator),
             torch.full((n_rotations,), math.pi / 4), torch.rand(n_rotations, generator=generator) * 6 - 3]  # fmt: skip
    choice = torch.randint(0, len(kinds), (n_rotations,), generator=generator)
    return torch.stack([kind.double() for kind in kinds])[choice, torch.arange(n_rotations)]


EXTREME_ANGLES = {
    "zero": lambda k, g: torch.zeros(k, dtype=torch.float64),
    "right": lambda k, g: torch.full((k,), math.pi / 2, dtype=torch.float64),
    "minus right": lambda k, g: torch.full((k,), -math.pi / 2, dtype=torch.float64),
    "nearly right": nearly_right,
    "half turns": lambda k, g: torch.full((k,), math.pi, dtype=torch.float64),
    "hadamard": lambda k, g: torch.full((k,), math.pi / 4, dtype=torch.float64),
    "sixty degrees": lambda k, g: torch.full((k,), math.pi / 3, dtype=torch.float64),
    "large": lambda k, g: 1000 * torch.randn(k, generator=g, dtype=torch.float64),
    "mixed": mixed,
}

EXTREME_EIGENVALUES = {
    "ordinary": lambda n: normal(n, seed=5),
    "1e-30 to 1e30": lambda n: torch.logspace(-30, 30, n, dtype=torch.float64),
    "1e-30 to 1": lambda n: torch.logspace(0, -30, n, dtype=torch.float64),
    "tiny": lambda n: 1e-35 * (1 + torch.rand(n, dtype=torch.float64)),
    "huge": lambda n: 1e35 * (1 + torch.rand(n, dtype=torch.float64)),
    "zero": lambda n: torch.zeros(n, dtype=torch.float64),
    "some zero": lambda n: normal(n, seed=5) * (torch.arange(n) % 3 == 0),
    "negative": lambda n: -normal(n, seed=5).abs(),
}

DEEP = {"butterfly": Butterfly(64, 16), "butterfly-odd": Butterfly(100, 6), "pairs": Pairs(24, list(
    np.random.default_rng(0).permuted(np.tile(np.arange(24), (80, 1)), axis=1).reshape(80, 12, 2)))}  # fmt: skip
ON_DEEP = pytest.mark.parametrize("wiring", DEEP.values(), ids=DEEP.keys())


def extended_rotate(wiring, angles, x, transpose):
    """Q x for rows of x in NumPy's extended precision: more exact than float64 where the platform has it."""
    theta, y = (t.numpy().astype(np.longdouble) for t in (angles, x))
    c, s = np.cos(theta), np.sin(-theta if transpose else theta)
    for index in range(wiring.n_layers) if transpose else reversed(range(wiring.n_layers)):
        here = slice(wiring.offsets[index], wiring.offsets[index + 1])
        i, j = wiring.layer(index).T
        a, b = y[:, i].copy(), y[:, j].copy()
        y[:, i], y[:, j] = c[here] * a - s[here] * b, s[here] * a + c[here] * b
    return y


def error(actual, exact):
    """Relative, in norm, in extended precision."""
    difference = actual.numpy().astype(np.longdouble) - exact
    return float(np.sqrt((difference**2).sum() / np.maximum((exact**2).sum(), np.finfo(np.longdouble).tiny)))


def no_worse(fast, plain, exact, dtype, n_layers):
    """The fast form's error is at most twice the plain form's; below half a rounding both are as good as exact.

    In float64 it is four times: coefficients are made in float64, and a fast one takes six roundings (cos, sin,
    tangent, scale, ratio, product) where a plain one takes two. Equal angles round alike, which adds them up.
    """
    exact = np.asarray(exact, np.longdouble)
    errors = error(fast, exact), error(plain, exact)
    factor = 2 if dtype == torch.float32 else 4
    floor = torch.finfo(dtype).eps * math.sqrt(n_layers) / 4
    assert errors[0] <= max(factor * errors[1], floor), "fast {:.3g}, plain {:.3g}".format(*errors)


@ON_DEEP
@pytest.mark.parametrize("kind", EXTREME_ANGLES)
@IN_WIDE_DTYPES
def test_fast_rotations_are_as_accurate_as_plain_ones(wiring, kind, dtype):
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].to(dtype)
    x = normal(1, 20, wiring.n, dtype=dtype)
    plain = cpu.prepare(wiring, angles, fast=False)
    # Equal angles have equal coefficients, rounded alike: errors, up to eps/4 a layer, add up in one direction.
    together = wiring.n_layers / 4 * torch.finfo(dtype).eps if len(angles.unique()) < angles.numel() else 0.0
    for transpose in (False, True):
        fast = cpu.rotate(wiring, angles, x, transpose)
        exact = extended_rotate(wiring, angles[0], x[0], transpose)[None]
        no_worse(
            fast, cpu.rotate(wiring, angles, x, transpose, prepared=plain), exact, dtype, wiring.n_layers
        )
        assert error(fast, exact) <= tolerance(dtype, wiring.n_layers) + together


@ON_DEEP
@pytest.mark.parametrize("spectrum", EXTREME_EIGENVALUES)
@pytest.mark.parametrize("kind", ["right", "nearly right", "hadamard", "large", "mixed"])
def test_fast_products_are_as_accurate_as_plain_ones(wiring, kind, spectrum):
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].float()
    d = EXTREME_EIGENVALUES[spectrum](wiring.n)[None].float()
    x = normal(1, 20, wiring.n, dtype=torch.float32)
    plain = cpu.prepare(wiring, angles, d, fast=False)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    results = [cpu.symmetric(wiring, angles, d, x), cpu.symmetric(wiring, angles, d, x, prepared=plain)]
    no_worse(*results, exact, torch.float32, 2 * wiring.n_layers)
    exact = reference.quadratic(wiring, angles.double(), d.double(), x.double())
    results = [cpu.quadratic(wiring, angles, d, x), cpu.quadratic(wiring, angles, d, x, prepared=plain)]
    no_worse(*results, exact, torch.float32, 2 * wiring.n_layers)


@ON_DEEP
@pytest.mark.parametrize("kind", EXTREME_ANGLES)
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_at_extreme_angles(wiring, kind, transpose):
    """Fast and plain passes mixed, scales far from 1: the gradients are those of the reference."""
    angles = EXTREME_ANGLES[kind](wiring.n_rotations, torch.Generator().manual_seed(0))[None].float()
    y, g = (normal(1, 9, wiring.n, dtype=torch.float32, seed=seed) for seed in (1, 2))
    expected = reference.rotate_backward(wiring, *doubles(angles, y, g), transpose)
    training = cpu.prepare_training(wiring, angles, y)
    for prepared in (None, training):
        grad_x, grad_angles = cpu.rotate_backward(wiring, angles, y, g, transpose, prepared=prepared)
        together = wiring.n_layers / 4 * torch.finfo(torch.float32).eps  # equal angles round alike
        assert error(grad_x, expected[0].numpy()) <= tolerance(torch.float32, wiring.n_layers) + together
        size = float((y.double().norm(dim=-1) * g.double().norm(dim=-1)).sum())
        worst = float((grad_angles.double() - expected[1]).abs().max())
        assert worst <= (tolerance(torch.float32, wiring.n_layers) + together) * size


def test_gradients_beyond_the_range_of_the_scaled_form():
    """tan θ = 2^7 six times over lengthens y and grad by 2^42 each; their wedge products do not fit float32."""
    wiring = Butterfly(64, 4)
    angles = torch.full((1, wiring.n_rotations), math.pi / 2 - 2.0**-7)
    y, g = (1e7 * normal(1, 4, 64, dtype=torch.float32, seed=seed) for seed in (1, 2))
    expected = reference.rotate_backward(wiring, *doubles(angles, y, g))
    training = cpu.prepare_training(wiring, angles, y)
    assert not training[0].plain.all()
    grad_x, grad_angles = cpu.rotate_backward(wiring, angles, y, g, prepared=training)
    assert torch.isfinite(grad_angles).all()
    size = float((y.double().norm(dim=-1) * g.double().norm(dim=-1)).sum())
    assert float((grad_angles.double() - expected[1]).abs().max()) <= 1e-5 * size
    assert_close(grad_x, expected[0], 1e-5)


@pytest.mark.parametrize("tiny", [1e-20, 1e-30])
def test_small_eigenvalues_keep_their_own_accuracy(tiny):
    """Two blocks that never meet, one of them 1e30 or more times as large: each block's own error is small."""
    wiring = Pairs(4, [[(0, 1), (2, 3)]] * 90)
    angles = torch.full((1, wiring.n_rotations), math.pi / 4 + 0.01)
    d = torch.tensor([[tiny, 2 * tiny, 1e10, 2e10]])
    x = normal(1, 3, 4, dtype=torch.float32)
    exact = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    actual = cpu.symmetric(wiring, angles, d, x)
    for block in (slice(0, 2), slice(2, 4)):
        assert_close(actual[..., block], exact[..., block], tolerance(torch.float32, 2 * wiring.n_layers))


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


# Multiply-adds


@pytest.mark.parametrize("n", [64, 100, 1024])
@IN_WIDE_DTYPES
def test_multiply_adds_of_a_butterfly(n, dtype):
    wiring = Butterfly(n)
    K = sum(len(layer) for layer in wiring.layers())

    def count(theta, form, wiring=wiring, eigenvalue=1.0):
        angles = torch.full((1, K), theta, dtype=dtype)
        return cpu.multiply_adds(
            wiring, cpu.prepare(wiring, angles, torch.full((1, n), eigenvalue, dtype=dtype)), form
        )

    assert count(0.3, "rotate") == 2 * K + n
    assert count(0.3, "symmetric") == 4 * K + n
    assert count(0.3, "quadratic") == 2 * K + 2 * n
    assert count(math.pi / 2, "rotate") == 4 * K  # cos 90° is no divisor: plain everywhere, no scales left
    assert count(math.pi / 2, "symmetric") == 8 * K + n
    assert count(math.pi / 2, "quadratic") == 4 * K + 2 * n
    assert count(0.3, "symmetric", wiring.T) == 4 * K + 3 * n  # two kernels with a scaling each, and D


def test_multiply_adds_of_pairs():
    wiring = WIRINGS["pairs-64"]
    K, n = len(wiring.pairs), 64
    angles = torch.full((1, K), 0.3)
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles)) == 2 * K + n
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles, torch.ones(1, n)), "symmetric") == 4 * K + n
    angles[0, 5] = math.pi / 2  # one rotation costs two more
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, angles)) == 2 * K + 2 + n
    assert cpu.multiply_adds(wiring, cpu.prepare(wiring, torch.zeros(1, K))) == 2 * K  # all scales are 1


def test_deep_butterflies_pay_for_few_plain_passes():
    """Scales shrink by √½ a layer: one pass in many must set them back to 1, the others stay fast."""
    wiring = Butterfly(1024, 16)
    K, n = wiring.n_rotations, wiring.n
    count = cpu.multiply_adds(wiring, cpu.prepare(wiring, torch.full((1, K), math.pi / 4)))
    assert 2 * K + n < count < 2.5 * K


@pytest.mark.parametrize("name", ["pairs-100", "hub", "one layer", "chain", "none"])
def test_rotations_are_joined_in_an_order_of_the_same_product(name):
    wiring = {
        "hub": lambda: Pairs(40, [[(0, k), (20 + k, 39 - k % 3)] for k in range(1, 17)]),
        "one layer": lambda: Pairs(8, [[(0, 1), (2, 3), (4, 5), (6, 7)]]),
        "chain": lambda: Pairs(9, [[(k, k + 1)] for k in range(8)]),
        "none": lambda: Pairs(4, []),
    }.get(name, lambda: WIRINGS[name])()
    order, joined, swapped = cpu_pairs.join(wiring.pairs, wiring.n)
    assert sorted(order) == list(range(wiring.n_rotations))
    place = np.argsort(order)
    for c in range(wiring.n):
        own = np.flatnonzero((wiring.pairs == c).any(1))
        assert (np.diff(place[own]) > 0).all(), f"rotations of coordinate {c} changed places"
    pairs = np.where(swapped[:, None], wiring.pairs[order][:, ::-1], wiring.pairs[order])
    (first,) = np.nonzero(joined)
    assert not joined[first + 1].any()  # nothing belongs to two
    assert (pairs[first, 0] == pairs[first + 1, 0]).all()
    assert len(first) == {"one layer": 0, "none": 0, "chain": 4}.get(name, len(first))
    if name in ("hub", "pairs-100"):
        assert len(first) > wiring.n_rotations // 4


# Threads


@pytest.mark.parametrize("name", ["butterfly-784", "butterfly-64-deep", "pairs-100"])
@pytest.mark.parametrize("m", [2, 3, 33, 1001])
@pytest.mark.parametrize("openmp", [True, False])
def test_threads_give_the_same_bits(name, m, openmp, monkeypatch):
    """On PyTorch's threads, where it has some and the wiring is a butterfly, and on Python's."""
    wiring, jobs = WIRINGS[name], []
    if openmp and not _openmp.available():
        pytest.skip("this PyTorch has no OpenMP")
    start = _openmp.on_threads
    monkeypatch.setattr(_openmp, "on_threads", lambda *job: (jobs.append(job), start(*job)))
    if not openmp:
        monkeypatch.setattr(_openmp, "_enter", None)
    angles, d, x, g = inputs(wiring, torch.float32, m=m)
    calls = [
        lambda: cpu.rotate(wiring, angles, x), lambda: cpu.rotate(wiring, angles, x, True),
        lambda: cpu.symmetric(wiring, angles, d, x), lambda: cpu.quadratic(wiring, angles, d, x),
        lambda: cpu.rotate_backward(wiring, angles, x, g)[0],
    ]  # fmt: skip
    expected = [call() for call in calls]
    gradient = cpu.rotate_backward(wiring, angles, x, g)[1]
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        for call, result in zip(calls, expected, strict=True):
            assert torch.equal(call(), result)
        # Sums over rows are taken piece by piece, so the gradient may differ by a rounding.
        assert_close(cpu.rotate_backward(wiring, angles, x, g)[1], gradient, 1e-5)
    assert bool(jobs) == (openmp and isinstance(wiring, Butterfly) and m > 2)  # two rows stay together


@pytest.mark.parametrize("name", ["butterfly-784", "pairs-100"])
def test_concurrent_calls_do_not_meet(name, monkeypatch):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1000)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1000)
    torch.set_num_threads(2)
    wiring = WIRINGS[name]
    angles, d, x, g = inputs(wiring, torch.float32, B=1, m=200)
    prepared = cpu.prepare(wiring, angles, d)

    def work(k):
        z = x * 2.0**k  # powers of two change no other bit
        return (
            cpu.symmetric(wiring, angles, d, z, prepared=prepared) / 2.0**k,
            cpu.rotate(wiring, angles, z, prepared=prepared) / 2.0**k,
            cpu.rotate_backward(wiring, angles, z, g)[0],
        )

    expected = work(0)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for results in pool.map(work, [k % 5 for k in range(60)]):
            assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


# Compilation

AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma",
}  # a name alone keeps the host's features


def test_registers_are_as_wide_as_the_cpus():
    features = llvm.get_host_cpu_features()
    if os.environ.get("NUMBA_CPU_NAME") == AVX2["NUMBA_CPU_NAME"]:
        width = 32
    else:
        width = 64 if features.get("avx512f") else 32 if features.get("avx") else 16
    assert width == simd.REGISTER_BYTES
    assert simd.lanes(32) == width // 4


@pytest.mark.skipif("NUMBA_CPU_NAME" in os.environ, reason="this is the run it starts")
@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="needs AVX2")
def test_avx2_from_the_same_source():
    """A part of this file, compiled for registers of 32 bytes."""
    chosen = (
        "registers or round_the_width or (equals_the_reference and not 2048) or (any_number and not 33) "
        "or (fast_rotations and mixed) or multiply_adds"
    )
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", __file__, "-k", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        env=environment(**AVX2), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


# Properties


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
