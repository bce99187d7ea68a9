"""Products over the whole range of the dtype, against an oracle that shares no code with the package.

The promise: where a dense product in the same dtype is finite, so is ours, and its error is at most four times the
dense product's own, in norm, plus n steps between subnormal numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cases import HALF, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st
from range_cases import WIDE, cases, dense, norm, some_angles, walk_back

from swallowtail import Butterfly, Rotation, SymmetricOperator
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu

BACKENDS = {"cpu": cpu, "reference": reference}


def check(actual, exact, by_dense, scale, n_layers, what):
    """Vector by vector: where the dense product ``by_dense`` is finite, the promise at the top of this file.

    A dense product is sometimes exact by luck. An error below the usual tolerance for so many layers, relative to
    ``scale``, is never too large.
    """
    finite = np.isfinite(by_dense).all(-1)
    number, n = by_dense.dtype, by_dense.shape[-1]
    actual, exact, by_dense, scale = (z[finite] for z in (actual, exact, by_dense, scale))
    assert np.isfinite(actual).all(), f"{what}: not finite where the dense product is"
    ours, own = (norm(z.astype(WIDE) - exact) for z in (actual, by_dense))
    usual = tolerance(torch.from_numpy(actual).dtype, n_layers) * scale
    bound = np.maximum(4 * own, usual) + n * WIDE(np.finfo(number).smallest_subnormal)
    assert (ours <= bound).all(), f"{what}: off by {ours}, at most {bound} allowed; dense {own}"


def products(case):
    """(form, exact, by a dense matrix in the same dtype, natural scale of the error, layers it goes through)."""
    number, n, layers = case.x.dtype.type, case.wiring.n, case.wiring.n_layers
    size, largest = norm(case.x), np.abs(case.d.astype(WIDE)).max()
    Q, q = dense(case.layers, case.angles, n, WIDE), dense(case.layers, case.angles, n, number)
    with np.errstate(all="ignore"):
        H, h = (Q * case.d) @ Q.T, (q * case.d) @ q.T
        y, by_dense = case.x @ H, case.x @ h
        yield "from_basis", case.x @ Q.T, case.x @ q.T, size, layers
        yield "to_basis", case.x @ Q, case.x @ q, size, layers
        yield "symmetric", y, by_dense, largest * size, 2 * layers
        sums = (y * case.x).sum(-1, keepdims=True), (by_dense * case.x).sum(-1, keepdims=True)
        yield "quadratic", *sums, 2 * largest * size**2, layers


def run(backend, form, case):
    angles, d, x, _ = case.tensors
    if form in ("from_basis", "to_basis"):
        return backend.rotate(case.wiring, angles, x, form == "to_basis")[0].numpy()
    return getattr(backend, form)(case.wiring, angles, d, x)[0].numpy().reshape(len(case.x), -1)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
@settings(deadline=None, max_examples=150)
@given(case=cases())
def test_products_over_the_whole_range(backend, case):
    for form, *rest in products(case):
        check(run(backend, form, case), *rest, form)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
@settings(deadline=None, max_examples=100)
@given(case=cases(), transpose=st.booleans())
def test_gradients_over_the_whole_range(backend, case, transpose):
    """Those for x are products with the transposed rotation; each angle's is a wedge product of y and g."""
    number, layers = case.x.dtype.type, case.wiring.n_layers
    angles, _, y, g = case.tensors
    Q, q = (dense(case.layers, case.angles, case.wiring.n, kind) for kind in (WIDE, number))
    grad_x, grad_angles = backend.rotate_backward(case.wiring, angles, y, g, transpose)
    with np.errstate(all="ignore"):
        exact, by_dense = (case.g @ (z.T if transpose else z) for z in (Q, q))
        check(grad_x[0].numpy(), exact, by_dense, norm(case.g), layers, "grad_x")
        exact = walk_back(case.layers, case.angles, case.x, case.g, transpose)
        finite = np.abs(exact) < np.finfo(number).max / 2
        error = np.abs(grad_angles[0].numpy() - exact)[finite]
    size = (norm(case.x) * norm(case.g)).sum()
    step = WIDE(np.finfo(number).smallest_subnormal)
    assert (error <= tolerance(grad_x.dtype, layers) * size + case.wiring.n * step).all(), (error, size)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@settings(deadline=None, max_examples=20)
@given(case=cases(numbers=(np.float32,)))
def test_half_precision_is_the_float32_result_rounded(dtype, case):
    """Angles are float32. Eigenvalues and vectors are stored in half precision; their products may need more range."""
    angles, d, x, _ = case.tensors
    d, x = d.to(dtype), x.to(dtype)
    for form in ("symmetric", "quadratic"):
        wide = getattr(cpu, form)(case.wiring, angles, d.float(), x.float())
        torch.testing.assert_close(
            getattr(cpu, form)(case.wiring, angles, d, x), wide.to(dtype), rtol=0, atol=0, equal_nan=True
        )


# What users saw


@pytest.mark.parametrize("reverse", [False, True])
def test_examples(reverse):
    """Fast Givens lengthens or shortens the vectors on the way by as much as 2^48."""
    wiring = Butterfly(64, 4, reverse=reverse)
    Q = Rotation(wiring, Rotation.random(64, 4, seed=0).angles.float())
    H = SymmetricOperator(Q, torch.ones(64))
    assert float(H.quadratic_form(torch.full((64,), 1e10))) == pytest.approx(6.4e21, rel=1e-5)
    assert (H @ torch.full((64,), 1e30)).tolist() == pytest.approx([1e30] * 64, rel=1e-5)
    for size in (1e-33, 1e-37):
        x = size * torch.linspace(1, 2, 64)
        for Q_ in (Q, Q.T):
            exact = Rotation(Q_.wiring, Q_.angles.double()) @ x.double()
            assert float((Q_ @ x - exact).norm() / exact.norm()) < 1e-6


def test_a_few_extreme_vectors_among_others():
    """Each vector has its own error; zeros and infinities do not disturb their neighbours."""
    wiring = Butterfly(64, 4)
    angles = torch.from_numpy(some_angles(np.random.default_rng(0), "uniform", wiring.n_rotations)).float()[
        None
    ]
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 300, 64))).float()
    x[0, ::7] *= 1e-36
    x[0, 1::7] *= 1e36
    x[0, 2::7] = 0
    x[0, 3::7, 5] = math.inf
    for transpose in (False, True):
        y = cpu.rotate(wiring, angles, x, transpose)[0]
        exact = reference.rotate(wiring, angles.double(), x.double(), transpose)[0]
        error = (y.double() - exact).norm(dim=-1) / exact.norm(dim=-1).clamp(min=1e-300)
        finite = torch.arange(300) % 7 != 3
        assert float(error[finite].max()) < 2e-6
        assert not torch.isfinite(y[~finite]).all(-1).any()


@pytest.mark.parametrize("n", [3, 5, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_subnormal_eigenvalues(n, dtype):
    d = torch.full((n,), 1e-40 if dtype == torch.float32 else 1e-310, dtype=dtype)
    H = SymmetricOperator(Rotation.random(n, dtype=dtype, seed=0), d)
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert float((H @ torch.ones(n, dtype=dtype) - d).abs().max()) <= n * step
