"""The Triton kernels of a fit, against PyTorch's version of the same walks."""

import numpy as np
import pytest
import torch
from interpreter import (
    DEVICE,
    compile_for_h200,
    needs_compiler,
    needs_kernels,
    only_without_kernels,
    run_interpreted,
)

from swallowtail.datasets import random_symmetric
from swallowtail.fitting.device import growth, walks
from swallowtail.fitting.device.growth import Residual, grow_layers
from swallowtail.fitting.device.walks import DERIVATIVES, GRADIENT, Steps, rotate, walk_back

kernels = pytest.importorskip("swallowtail.fitting.device.kernels")

N, K = 21, 40


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


def case(dtype):
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.permutation(N)[:2] for _ in range(K)])
    angles, A = rng.uniform(-3, 3, K), rng.standard_normal((N, N))
    return pairs, angles, torch.from_numpy(A + A.T).to(dtype)


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "mode"),
    [(torch.float64, "gradient"), (torch.float32, "derivatives"), (torch.float32, "losses")],
)
def test_kernels_do_what_pytorch_does(dtype, mode, monkeypatch):
    pairs, angles, A = case(dtype)
    block = torch.randn(3, 400, generator=torch.Generator().manual_seed(0), dtype=dtype)
    found = []
    for by_kernels, device in ((False, torch.device("cpu")), (True, DEVICE)):
        monkeypatch.setattr(walks, "by_kernels", lambda X, chosen=by_kernels: chosen)
        steps = Steps.of(N, pairs, device)
        c, s = steps.coefficients(angles, dtype)
        V = A.to(device, copy=True)
        rotate(V, steps, c, s)
        X, d = torch.eye(N, dtype=dtype, device=device), V.diagonal().clone()
        own = block[:, : len(c)].to(device).contiguous() if mode == "losses" else None
        rotated = V.clone()
        sums = walk_back(V, X, d, steps, c, s, DERIVATIVES if mode == "derivatives" else GRADIENT, own)
        found.append([z.double().cpu().numpy() for z in (rotated, V, X, sums[:, steps.place])])
    rounding = 1e-12 if dtype == torch.float64 else 2e-5
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, atol=rounding * np.abs(expected).max())
    # The way back ends where it began.
    np.testing.assert_allclose(found[0][1], A.double(), atol=50 * rounding)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64])
def test_kernels_grow_as_pytorch_does(dtype, monkeypatch):
    monkeypatch.setattr(growth, "SCAN", 16)  # several blocks per row
    monkeypatch.setattr(growth, "ROW", 16)
    monkeypatch.setattr(growth, "PAIRS", 4)
    H, found = torch.from_numpy(random_symmetric(19, 6, 0)), []
    for by_kernels, device in ((False, torch.device("cpu")), (True, DEVICE)):
        monkeypatch.setattr(growth, "by_kernels", lambda X, chosen=by_kernels: chosen)
        A = Residual.of(H.to(device, dtype, copy=True))
        pairs, angles = grow_layers(A, 30, 0.1, 0.0)
        found.append((pairs, angles, A.rest.double().cpu().numpy(), A.diagonal.double().cpu().numpy()))
    rounding = 1e-12 if dtype == torch.float64 else 1e-4
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, atol=rounding)
    np.testing.assert_allclose(found[0][2], found[0][2].T, atol=rounding)


@needs_compiler
@pytest.mark.parametrize(("sums", "losses"), [(1, False), (9, False), (1, True)])
def test_kernels_compile_for_an_h200(sums, losses):
    shape = {"STEP": 16, "WIDTH": 16}
    integers = {"first_ptr": "*i32", "second_ptr": "*i32"}
    compile_for_h200(kernels.walk_kernel, 2, {"SUMS": sums, "LOSSES": losses, **shape}, integers)
    if not losses:
        compile_for_h200(kernels.rotate_kernel, 2, {"BACK": sums > 1, **shape}, integers)


@needs_compiler
def test_growth_compiles_for_an_h200():
    integers = {"first_ptr": "*i32", "second_ptr": "*i32", "out_ptr": "*fp64"}
    for grouped in (False, True):
        labels = {**integers, "label_ptr": "*i32", "held_ptr": "*i32"} if grouped else integers
        compile_for_h200(kernels.largest_kernel, 4, {"GROUPED": grouped, "BLOCK": 1024}, labels)
    doubles = {**integers, "tan_ptr": "*fp64"}
    compile_for_h200(kernels.angles_kernel, 2, {"BLOCK": 64}, doubles)
    compile_for_h200(kernels.turn_rows_kernel, 4, {"BLOCK": 1024}, integers)
    compile_for_h200(kernels.turn_columns_kernel, 2, {"BLOCK": 64}, integers)
