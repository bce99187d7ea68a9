"""Every product and gradient on vectors, gradients and eigenvalues of any size, against the reference in float64.

Numbers near 1 are multiplied by powers of two, so that the exact results are those of the numbers near 1, times powers
of two. These are computed in extended precision, whose range is wide enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import DEVICE, INTERPRETED, needs_gluon, needs_kernels
from range_cases import WIDE, cases, dense, norm, walk_back

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import problem
from kernels.gpu.grouping import fixed_groups, free_groups
from kernels.test_range import products

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import device, plan
from swallowtail.ops.functional import quadratic_form, symmetric_matvec
from swallowtail.wiring import Butterfly, Pairs, Wiring

FLOAT, DOUBLE, BF16, FP16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
BETWEEN_PASSES = ((-100, 120), (60, -80))  # numbers are stored there: those below 2^-126 lose digits
CUDA = [pytest.mark.gpu, needs_gluon]


class Sizes(NamedTuple):
    """Exponents of 2 of vectors, one after another, of eigenvalues, and of vectors with their gradients."""

    vectors: tuple[int, ...]
    eigenvalues: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


SIZES = {
    FLOAT: Sizes(
        (-140, -125, -100, -60, 0, 50, 100, 120), (-140, -100, 0, 60, 120),
        ((-140, 120), (120, -140), (-70, -70), (60, 60), (-140, 0), (0, 120)),
    ),
    DOUBLE: Sizes(
        (-1060, -1000, -500, 0, 500, 1010), (-1060, 0, 1000),
        ((-1060, 1010), (1010, -1060), (-520, -520), (500, 500)),
    ),
    # Tensor cores round between two rounds: there bf16's numbers just above its smallest lose digits (docs/design.md).
    BF16: Sizes((-100, -60, 0, 60, 110), (-20, 0, 15), ((-120, 110), (110, -120), (-60, -60), (50, 60))),
    FP16: Sizes((-14, -5, 0, 4, 8), (-4, 0, 2), ((-14, 8), (8, -14), (-10, -10))),
}  # fmt: skip


def sized(t: torch.Tensor, exponents) -> torch.Tensor:
    """t times powers of two, one per vector or one for all, in its dtype."""
    powers = np.exp2(np.asarray(exponents, WIDE))
    return torch.from_numpy(np.float64(wide(t) * powers)).to(t.device, t.dtype)


def wide(t: torch.Tensor) -> np.ndarray:
    return t.detach().double().cpu().numpy().astype(WIDE)


def near_one(t: torch.Tensor, exponents) -> torch.Tensor:
    """What `sized` was made from, as its dtype has kept it."""
    return torch.from_numpy(np.float64(wide(t) / np.exp2(np.asarray(exponents, WIDE))))


def length(a: np.ndarray) -> np.ndarray:
    return np.sqrt((a**2).sum(-1, keepdims=True))


def check(
    actual: torch.Tensor, exact: np.ndarray, scale: np.ndarray, wiring: Wiring, what: str, rounded, dense=0.0
) -> None:
    """Each vector is off by (layers + 4) ε of its natural scale, by one rounding to ``rounded``, or by n steps.

    ``dense`` is four times the error of a dense product, where that is more.
    """
    info = torch.finfo(actual.dtype)
    arithmetic = torch.finfo(DOUBLE if actual.dtype == DOUBLE else FLOAT).eps
    bound = (wiring.n_layers + 4) * arithmetic + (torch.finfo(rounded).eps if rounded.itemsize == 2 else 0)
    fits = np.abs(exact).max(-1) < info.max / 4
    assert fits.any(), what
    error = length(wide(actual) - exact)[..., 0]
    allowed = bound * scale[..., 0] + wiring.n * WIDE(info.smallest_normal) * info.eps + dense
    assert (error <= allowed)[fits].all(), (what, error / allowed, fits)


def check_products(wiring: Wiring, dtype: torch.dtype, prepared: bool, batch: int) -> None:
    sizes = SIZES[dtype]
    angles, d, x, _ = problem(wiring, batch, len(sizes.vectors), dtype)
    column = np.array(sizes.vectors)[:, None]
    x = sized(x / 4, column)
    theta, moderate = angles.double().cpu(), near_one(x, column)
    powers, lengths = np.exp2(column.astype(WIDE)), length(wide(x))
    tables = gpu.prepare(wiring, angles) if prepared else None
    for transpose in (False, True):
        y = gpu.rotate(wiring, angles, x, transpose, tables)
        exact = wide(reference.rotate(wiring, theta, moderate, transpose)) * powers
        check(y, exact, lengths, wiring, f"rotate {transpose=}", dtype)
    for size in sizes.eigenvalues:
        eigenvalues = sized(d, size)
        moderate_d, power = near_one(eigenvalues, size), np.exp2(WIDE(size))
        largest = np.abs(wide(eigenvalues)).max()
        tables = gpu.prepare(wiring, angles, eigenvalues) if prepared else None
        y = gpu.symmetric(wiring, angles, eigenvalues, x, tables)
        exact = wide(reference.symmetric(wiring, theta, moderate_d, moderate)) * powers * power
        # Groups have their matrices. Subnormal entries of one are off by half a step each, as those of a dense one.
        step = WIDE(torch.finfo(d.dtype).smallest_normal) * torch.finfo(d.dtype).eps
        dense = 4 * step / 2 * wiring.n * lengths[..., 0] if isinstance(wiring, Pairs) and batch == 1 else 0.0
        check(y, exact, 2 * largest * lengths, wiring, f"symmetric {size}", dtype, dense)
        q = gpu.quadratic(wiring, angles, eigenvalues, x, tables)[..., None]
        exact = wide(reference.quadratic(wiring, theta, moderate_d, moderate))[..., None] * powers**2 * power
        # Vectors that PyTorch or a kernel has stored as Qᵀx may have subnormal numbers, off by half a step each.
        stored = (
            2 * step * np.sqrt(WIDE(wiring.n)) * largest * lengths[..., 0]
            if isinstance(wiring, Pairs)
            else 0.0
        )
        check(q, exact, 2 * largest * lengths**2, wiring, f"quadratic {size}", dtype, stored)


def check_gradients(wiring: Wiring, dtype: torch.dtype, batch: int, pairs=None) -> None:
    """All vectors of one size, and of different sizes: their products may be very different, or all alike."""
    pairs = pairs or SIZES[dtype].pairs
    m = 2 * len(pairs) + 1
    together = [(np.full((m, 1), a), np.full((m, 1), b)) for a, b in pairs]
    mixed = np.array([pairs[k % len(pairs)] for k in range(m)])
    among_zeros = mixed[:, :1], mixed[::-1, 1:]
    angles, _, y0, g0 = problem(wiring, batch, m, dtype)
    theta = angles.double().cpu()
    for a, b in (*together, (mixed[:, :1], mixed[:, 1:]), among_zeros):
        y, g = sized(y0 / 4, a), sized(g0 / 4, b)
        if a is among_zeros[0]:
            y[:, 0], g[:, 1] = 0, 0
        for transpose in (False, True):
            grad_x, grad_angles = gpu.rotate_backward(wiring, angles, y, g, transpose)
            moderate_y, moderate_g = near_one(y, a), near_one(g, b)
            common = int((a + b).max())
            relative = torch.from_numpy(np.exp2((a + b - common).astype(np.float64)))
            exact_x, exact = reference.rotate_backward(
                wiring, theta, moderate_y * relative, moderate_g, transpose
            )
            what = f"{transpose=}, sizes {a[:3, 0]} and {b[:3, 0]}"
            check(
                grad_x, wide(exact_x) * np.exp2(b.astype(WIDE)), length(wide(g)), wiring, f"x {what}", dtype
            )
            check_angles(grad_angles, wide(exact) * np.exp2(WIDE(common)), y, g, wiring, what)


def check_angles(actual: torch.Tensor, exact: np.ndarray, y, g, wiring: Wiring, what: str) -> None:
    info = torch.finfo(actual.dtype)
    fits = np.abs(exact) < info.max / 4
    bound = (wiring.n_layers + 4) * info.eps + (torch.finfo(y.dtype).eps if y.itemsize == 2 else 0)
    size = (length(wide(y)) * length(wide(g))).sum(-2)
    error = np.abs(wide(actual) - exact)
    allowed = bound * size + wiring.n * WIDE(info.smallest_normal) * info.eps
    assert (error <= allowed)[fits].all(), (f"angles {what}", (error / allowed)[fits].max())


def layers_of_pairs(n: int, layers: int) -> Pairs:
    generator = np.random.default_rng(n)
    return Pairs(n, [generator.permutation(n)[: n // 2 * 2].reshape(-1, 2) for _ in range(layers)])


SMALL = [
    (Butterfly(6, 3), 1), (Butterfly(16, 2, reverse=True), 2), (Butterfly(33), 1),
    (layers_of_pairs(9, 4), 2), (Pairs.from_sequence(40, [(0, k) for k in range(1, 6)])[0], 2),
    (layers_of_pairs(9, 4), 1), (fixed_groups(20, 5, 2), 1),
]  # fmt: skip
ON_A_GPU = [
    *((Butterfly(n), 1, FLOAT) for n in (24, 100, 784, 1024, 2048, 4096)),
    (Butterfly(784, reverse=True), 1, FLOAT), (Butterfly(4096, reverse=True), 1, FLOAT),
    (Butterfly(1024, 2), 1, FLOAT), (Butterfly(100, 8, reverse=True), 2, FLOAT), (Butterfly(4096, 8), 1, FLOAT),
    (layers_of_pairs(784, 10), 1, FLOAT), (layers_of_pairs(784, 10), 2, FLOAT), (layers_of_pairs(4096, 3), 2, FLOAT),
    (fixed_groups(784, 16, 3), 1, FLOAT), (fixed_groups(1024, 128, 1), 1, FLOAT), (fixed_groups(1000, 96, 1), 1, FLOAT),
    (free_groups(784, 16, 3), 1, FLOAT), (free_groups(1700, 16, 2), 1, FLOAT), (free_groups(4096, 16, 1), 1, FLOAT),
    (Butterfly(24), 1, DOUBLE), (Butterfly(1024, reverse=True), 1, DOUBLE), (layers_of_pairs(784, 4), 1, DOUBLE),
    *((Butterfly(n), 1, BF16) for n in (100, 1024, 2048, 4096)), (Butterfly(784, 2, reverse=True), 1, BF16),
    (layers_of_pairs(784, 3), 2, BF16), (fixed_groups(784, 16, 3), 1, BF16),
    *((Butterfly(n), 1, FP16) for n in (100, 1024, 4096)), (fixed_groups(784, 16, 3), 1, FP16),
]  # fmt: skip
CASES = [
    *(pytest.param(*case, dtype, marks=needs_kernels) for case in SMALL for dtype in (FLOAT, DOUBLE)),
    *(pytest.param(*case, marks=CUDA) for case in ON_A_GPU),
]


@pytest.mark.parametrize(("wiring", "batch", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("prepared", [False, True])
@np.errstate(all="ignore")  # the interpreter's arithmetic: some results are too large
def test_products(wiring, batch, dtype, prepared):
    check_products(wiring, dtype, prepared, batch)


@pytest.mark.parametrize(("wiring", "batch", "dtype"), CASES, ids=str)
@np.errstate(all="ignore")
def test_gradients(wiring, batch, dtype):
    check_gradients(wiring, dtype, batch)


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@np.errstate(all="ignore")
def test_gradients_in_several_passes(monkeypatch, reverse):
    """Passes as those of large n, few vectors at a time: sums go on from launch to launch."""
    passes = (plan.Pass(0, 2, 1, 1), plan.Pass(2, 2, 2, 1))
    monkeypatch.setattr(plan, "passes_of", lambda n: passes)
    monkeypatch.setattr(plan, "tile_of", lambda *_: plan.Tile(2, 4))
    monkeypatch.setattr(device, "SCRATCH_BYTES", 2 * 13 * 4 * 8)
    check_gradients(Butterfly(13, reverse=reverse), FLOAT, 1, BETWEEN_PASSES)


def check_beside_dense(actual, exact, by_dense, scale, layers, what) -> None:
    """Where a dense product is finite: four times its own error, (layers + 4) ε, and n steps. Angles may be alike."""
    finite, info = np.isfinite(by_dense).all(-1), np.finfo(by_dense.dtype)
    ours, own = (norm(z[finite].astype(WIDE) - exact[finite]) for z in (actual, by_dense))
    bound = np.maximum(4 * own, (layers + 4) * info.eps * scale[finite])
    assert (ours <= bound + by_dense.shape[-1] * WIDE(info.smallest_subnormal)).all(), (what, ours, bound)


@needs_kernels
@pytest.mark.skipif(not INTERPRETED, reason="on a GPU every case would be compiled")
@settings(deadline=None, max_examples=5)
@given(case=cases(), transpose=st.booleans())
@np.errstate(all="ignore")
def test_beside_a_dense_product(case, transpose):
    """The cases of the other back ends, as two equal rotations: pairs of one rotation may go to groups."""
    angles, d, x, g = (torch.cat([t, t]).to(DEVICE) for t in case.tensors)
    run = {
        form: lambda form=form: gpu.rotate(case.wiring, angles, x, form == "to_basis")
        for form in ("from_basis", "to_basis")
    }
    run["symmetric"] = lambda: gpu.symmetric(case.wiring, angles, d, x)
    run["quadratic"] = lambda: gpu.quadratic(case.wiring, angles, d, x)[..., None]
    for form, *rest in products(case):
        check_beside_dense(run[form]()[1].cpu().numpy(), *rest, form)
    number, n, layers = case.x.dtype.type, case.wiring.n, case.wiring.n_layers
    grad_x, grad_angles = gpu.rotate_backward(case.wiring, angles, x, g, transpose)
    Q, q = (dense(case.layers, case.angles, n, kind) for kind in (WIDE, number))
    exact, by_dense = (case.g @ (z.T if transpose else z) for z in (Q, q))
    check_beside_dense(grad_x[1].cpu().numpy(), exact, by_dense, norm(case.g), layers, "grad_x")
    exact = walk_back(case.layers, case.angles, case.x, case.g, transpose)
    check_angles(grad_angles[1:], exact[None], x[1:], g[1:], case.wiring, "beside a dense product")


@pytest.mark.gpu
@needs_gluon
@pytest.mark.parametrize("wiring", [Butterfly(9000), Butterfly(2**14, reverse=True)], ids=repr)
def test_gradients_of_long_vectors(wiring):
    check_gradients(wiring, FLOAT, 1, BETWEEN_PASSES)


@pytest.mark.gpu
@needs_gluon
@pytest.mark.parametrize("n", [24, 1024])
def test_gradients_of_eigenvalues(n):
    """Those of Q D Qᵀ x and xᵀ Q D Qᵀ x with the sizes of x and of the incoming gradient far apart."""
    wiring = Butterfly(n)
    angles, d, x, g = (t[0] for t in problem(wiring, 1, 3, FLOAT))
    w, v = (
        wide(reference.rotate(wiring, angles[None].double().cpu(), t[None].double().cpu(), True))[0]
        for t in (x, g)
    )
    for a, b in ((-120, 110), (110, -120), (0, 0)):
        scaled_x, scaled_g = sized(x, a), sized(g, b)
        eigenvalues = d.clone().requires_grad_()
        (grad,) = torch.autograd.grad(
            symmetric_matvec(scaled_x, wiring, angles, eigenvalues), eigenvalues, scaled_g
        )
        exact = (w * v).sum(0) * np.exp2(WIDE(a + b))
        assert length(wide(grad) - exact) <= 1e-5 * length(exact), (a, b)
    (grad,) = torch.autograd.grad(
        quadratic_form(sized(x, -50), wiring, angles, eigenvalues).sum(), eigenvalues
    )
    exact = (w**2).sum(0) * np.exp2(WIDE(-100))
    assert length(wide(grad) - exact) <= 1e-5 * length(exact)
