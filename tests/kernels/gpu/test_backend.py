"""The Triton kernels against the reference, on a GPU or in Triton's interpreter (`interpreter.py`)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from interpreter import DEVICE, RUNS_HERE, needs_kernels, only_without_kernels, run_interpreted

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.wiring import Butterfly, Pairs, Wiring

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


def random_pairs(n: int, n_layers: int) -> Pairs:
    generator = np.random.default_rng(n)
    sizes = generator.integers(0, n // 2 + 1, n_layers)
    return Pairs(n, [generator.permutation(n)[: 2 * size].reshape(-1, 2) for size in sizes])


CASES = {
    "butterfly-1": Butterfly(1),
    "butterfly-2": Butterfly(2),
    "butterfly-3-deep": Butterfly(3, 2),
    "butterfly-5-reverse": Butterfly(5, reverse=True),
    "butterfly-16": Butterfly(16),
    "butterfly-17-deep-reverse": Butterfly(17, 2, reverse=True),
    "butterfly-65": Butterfly(65),
    "butterfly-100": Butterfly(100),
    "pairs-3": random_pairs(3, 4),
    "pairs-17": random_pairs(17, 9),
    "pairs-hub": Pairs(40, [[(0, k), (20 + k, 39 - k)] for k in range(1, 9)]),  # most coordinates untouched
    "pairs-none": Pairs(4, []),
}
every_case = pytest.mark.parametrize("wiring", CASES.values(), ids=CASES.keys())


def problem(wiring: Wiring, batch: int, m: int, dtype: torch.dtype = torch.float64):
    """Angles, eigenvalues, vectors and gradients; the first two in the dtype of the arithmetic."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    generator = torch.Generator().manual_seed(wiring.n)
    angles = (torch.rand(batch, wiring.n_rotations, generator=generator, dtype=torch.float64) * 2 - 1) * np.pi
    d = torch.randn(batch, wiring.n, generator=generator, dtype=torch.float64)
    x, grad = torch.randn(2, batch, m, wiring.n, generator=generator, dtype=torch.float64)
    return angles.to(DEVICE, wide), d.to(DEVICE, wide), x.to(DEVICE, dtype), grad.to(DEVICE, dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, bound: float, what: str) -> None:
    assert actual.shape == expected.shape, what
    error = (actual.double() - expected).norm() / expected.norm().clamp_min(1e-30)
    assert error <= bound, f"{what}: relative error {error:.2e}, expected at most {bound:.2e}"


def check(wiring: Wiring, batch: int, m: int, dtype: torch.dtype, bound: float, prepared: bool) -> None:
    """Every function against the reference in float64 on the same numbers."""
    angles, d, x, grad = problem(wiring, batch, m, dtype)
    tables = gpu.prepare(wiring, angles, d) if prepared else None
    exact_angles, exact_d, exact_x, exact_grad = (t.double() for t in (angles, d, x, grad))
    for transpose in (False, True):
        y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
        assert y.dtype == dtype
        assert_close(
            y, reference.rotate(wiring, exact_angles, exact_x, transpose), bound, f"rotate {transpose=}"
        )
        actual = gpu.rotate_backward(wiring, angles, y, grad, transpose, prepared=tables)
        expected = reference.rotate_backward(wiring, exact_angles, y.double(), exact_grad, transpose)
        for a, e, what in zip(actual, expected, ("gradient of x", "gradient of angles"), strict=True):
            assert_close(a, e, bound, f"{what} {transpose=}")
    actual = gpu.symmetric(wiring, angles, d, x, prepared=tables)
    assert actual.dtype == dtype
    assert_close(actual, reference.symmetric(wiring, exact_angles, exact_d, exact_x), bound, "symmetric")
    actual = gpu.quadratic(wiring, angles, d, x, prepared=tables)
    assert_close(actual, reference.quadratic(wiring, exact_angles, exact_d, exact_x), 4 * bound, "quadratic")


@needs_kernels
@every_case
@pytest.mark.parametrize("prepared", [True, False])
def test_every_function_matches_the_reference(wiring, prepared):
    check(wiring, 2, 3, torch.float64, 1e-13, prepared)


@needs_kernels
@pytest.mark.parametrize("name", ["butterfly-17-deep-reverse", "pairs-17"])
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_storage_dtypes(name, dtype, bound):
    check(CASES[name], 1, 5, dtype, bound, True)


@needs_kernels
@pytest.mark.parametrize("m", [0, 1])
@pytest.mark.parametrize("name", ["butterfly-5-reverse", "pairs-17"])
def test_no_vector_and_one_vector(name, m):
    check(CASES[name], 1, m, torch.float64, 1e-13, False)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_several_passes(monkeypatch, dtype):
    """Small passes stand in for large n: a contiguous one of 3 stages and a strided one of 2, row by row."""
    from swallowtail.kernels.gpu import butterfly as gpu_butterfly
    from swallowtail.kernels.gpu import tables as gpu_tables

    passes = (gpu_tables.Pass(0, 3, 1, 2), gpu_tables.Pass(3, 2, 8, 1))
    monkeypatch.setattr(gpu_tables, "_passes", lambda n: passes)
    monkeypatch.setattr(gpu_butterfly, "_tile", lambda *_: (2, 4))
    monkeypatch.setattr(gpu_butterfly, "CHUNK_BYTES", 500)
    wiring = Butterfly(29, 2, reverse=True) if dtype == torch.float64 else Butterfly(32)
    check(wiring, 1, 2, dtype, 1e-13 if dtype == torch.float64 else 8e-3, True)


needs_gluon = pytest.mark.skipif(
    DEVICE.type != "cuda" or not RUNS_HERE, reason="no GPU: the interpreter cannot run Gluon"
)


@needs_gluon
@pytest.mark.parametrize("n", [1024, 784, 513])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-7), (torch.bfloat16, 3e-3)])
def test_sums_held_in_registers(n, reverse, dtype, bound):
    """`gpu_backward_held`: one vector, an odd number, more than the programs take at once; unwritten memory is NaN."""
    from swallowtail.kernels.gpu import tables as gpu_tables

    wiring = Butterfly(n, reverse=reverse)
    torch.use_deterministic_algorithms(True)
    try:
        for batch, m in ((1, 1), (2, 1003), (1, 3001)):
            angles, _, x, grad = problem(wiring, batch, m, dtype)
            tables = gpu.prepare_training(wiring, angles, x)
            assert tables.passes == (gpu_tables.HELD,)
            for transpose in (False, True):
                y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
                assert_close(
                    y, reference.rotate(wiring, angles.double(), x.double(), transpose), bound, "rotate"
                )
                actual = gpu.rotate_backward(wiring, angles, y, grad, transpose, prepared=tables)
                expected = reference.rotate_backward(
                    wiring, angles.double(), y.double(), grad.double(), transpose
                )
                for a, e in zip(actual, expected, strict=True):
                    assert_close(a, e, bound, f"{batch=} {m=} {transpose=}")
    finally:
        torch.use_deterministic_algorithms(False)


@needs_gluon
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "wiring",
    [Butterfly(1024), Butterfly(1024, 3, reverse=True), Butterfly(784, 2), Butterfly(513, reverse=True)],
)
def test_vectors_held_whole(wiring, fast, monkeypatch):
    """`gpu_rotate_held` for half precision and for Q D Qᵀ, and where it is left to Triton; unwritten memory is NaN."""
    from swallowtail.kernels.gpu import butterfly as gpu_butterfly

    launched = []
    start = gpu_butterfly.start
    monkeypatch.setattr(
        gpu_butterfly, "start", lambda kernel, *a, **k: (launched.append(kernel), start(kernel, *a, **k))
    )
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        for dtype, bound in (
            (torch.float32, 3e-7 * wiring.depth**0.5),
            (torch.bfloat16, 3e-3),
            (torch.float16, 5e-4),
        ):
            for batch, m in ((1, 1), (2, 13), (1, 301)):
                angles, d, x, _ = problem(wiring, batch, m, dtype)
                tables = gpu.prepare(wiring, angles, d, fast=fast)
                exact = (angles.double(), d.double(), x.double())
                launched.clear()
                for transpose in (False, True):
                    y = gpu.rotate(wiring, angles, x, transpose, prepared=tables)
                    assert_close(y, reference.rotate(wiring, exact[0], exact[2], transpose), bound, "rotate")
                y = gpu.symmetric(wiring, angles, d, x, prepared=tables)
                assert_close(y, reference.symmetric(wiring, *exact), bound, "symmetric")
                held = [kernel is gpu_butterfly.gpu_rotate_held.rotate_kernel for kernel in launched]
                assert held == [dtype != torch.float32, dtype != torch.float32, True]
    finally:
        torch.use_deterministic_algorithms(False)


@needs_kernels
def test_expanded_and_strided_vectors():
    wiring = CASES["butterfly-17-deep-reverse"]
    angles, d, x, _ = problem(wiring, 1, 4)
    for view in (x[:, :1].expand(1, 4, 17), x.transpose(1, 2).contiguous().transpose(1, 2), x[:, ::2]):
        expected = reference.symmetric(wiring, angles, d, view)
        assert_close(gpu.symmetric(wiring, angles, d, view), expected, 1e-13, "symmetric")


@needs_kernels
def test_fast_form_and_its_fallback():
    """Angles at 90° have no tangent, tiny eigenvalues no room for the scales: the plain form is as
    accurate."""
    wiring = Butterfly(16)
    angles, d, x, _ = problem(wiring, 1, 3, torch.float32)
    fast = gpu.prepare(wiring, angles, d)
    assert gpu.multiply_adds(wiring, fast) == 2 * 32 + 16
    assert gpu.multiply_adds(wiring, fast, "symmetric") == 4 * 32 + 16
    angles[0, 3] = torch.pi / 2
    for tables in (gpu.prepare(wiring, angles, d), gpu.prepare(wiring, angles * 0.1, d * 1e-30)):
        assert gpu.multiply_adds(wiring, tables) == 4 * 32
    y = gpu.symmetric(wiring, angles, d, x, prepared=gpu.prepare(wiring, angles))
    expected = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert_close(y, expected, 1e-6, "symmetric")


@needs_kernels
def test_angle_gradients_have_the_same_bits_every_time():
    for wiring in (Butterfly(33), CASES["pairs-17"]):
        angles, _, y, grad = problem(wiring, 1, 50, torch.float32)
        first, second = (gpu.rotate_backward(wiring, angles, y, grad)[1] for _ in range(2))
        assert torch.equal(first, second)


def test_availability_is_explained(monkeypatch):
    if not RUNS_HERE:
        assert "TRITON_INTERPRET" in gpu.available()
    else:
        assert gpu.available() is None
    monkeypatch.setattr(gpu, "triton", None)
    assert "Triton" in gpu.available()
