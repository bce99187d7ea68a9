"""Every Gluon kernel, compiled for an H200 and run in NumPy (`emulator`): products and gradients against the reference.

Accesses out of bounds, words that warps use at once and copies that nobody waits for are failures as well.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from emulator.h200 import pretend
from interpreter import needs_compiler
from kernels.gpu.checking import check, problem
from kernels.gpu.grouping import HUB, fixed_groups, free_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import blocks
from swallowtail.wiring import Butterfly, Pairs, Wiring

CPU = torch.device("cpu")
BOUNDS = {torch.float32: 4e-7, torch.bfloat16: 4.5e-3, torch.float16: 6.5e-4}
# Wiring, rotations, vectors, dtype, whether tables are prepared, and the Gluon kernels that have to be among those run.
CASES: dict[str, tuple[Wiring, int, int, torch.dtype, bool, set[str]]] = {
    "butterfly": (Butterfly(784), 1, 3, torch.float32, True, {"whole_rotate_kernel", "whole_backward_kernel"}),
    "reversed": (Butterfly(1024, reverse=True), 2, 3, torch.float32, False, {"whole_backward_kernel"}),
    "short": (Butterfly(300, reverse=True), 1, 5, torch.float32, True, {"whole_backward_kernel"}),
    "long": (Butterfly(2056), 1, 1, torch.float32, True, {"whole_backward_kernel"}),
    "deep": (Butterfly(604, 2), 1, 3, torch.bfloat16, True, {"whole_rotate_kernel"}),
    "deep, in rounds": (Butterfly(600, 2), 1, 3, torch.bfloat16, True, {"half_rounds_kernel"}),
    "pairs": (Pairs(24, [[(k, 23 - k)] for k in range(12)] * 3), 2, 33, torch.float32, True, {"shared_pairs_kernel"}),
    "groups": (free_groups(264, 16, 2), 1, 70, torch.float32, True, {"rounds_kernel", "round_gradients_kernel"}),
    "half groups": (free_groups(520, 16, 2), 1, 70, torch.bfloat16, True, {"half_rounds_kernel"}),
    "fp16 groups": (free_groups(520, 16, 2), 1, 70, torch.float16, False, {"half_rounds_kernel"}),
    "blocks": (Butterfly(512), 1, 70, torch.bfloat16, True, {"blocks_kernel"}),
    "more blocks": (Butterfly(1000, reverse=True), 1, 20, torch.float16, True, {"blocks_kernel"}),
    "thirds": (Butterfly(2048), 1, 20, torch.bfloat16, True, {"thirds_kernel", "half_rounds_kernel"}),
    "strided": (Butterfly(4096), 1, 9, torch.bfloat16, True, {"blocks_kernel", "strided_kernel"}),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_every_function(name, monkeypatch):
    wiring, batch, m, dtype, prepared, kernels = CASES[name]
    monkeypatch.setattr(blocks, "MANY", 0)  # few vectors take several launches too
    launched = pretend(monkeypatch, apart=name in ("short", "half groups", "blocks"))
    check(wiring, batch, m, dtype, BOUNDS[dtype], prepared, CPU)
    assert kernels <= set(launched)


@pytest.mark.extras
@needs_compiler
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    "wiring",
    [
        *(Butterfly(n, reverse=n % 16 == 0) for n in (16, 24, 128, 136, 256, 264, 512, 520, 1024, 2048, 3000)),
        Butterfly(8192, reverse=True), Butterfly(100, 2), Butterfly(1024, 2, reverse=True),
        Pairs(50, [[(k, 49 - k) for k in range(25)], [(k, k + 25) for k in range(25)]]),
        fixed_groups(784, 16, 3), fixed_groups(1024, 128, 2), fixed_groups(1000, 96, 1), free_groups(784, 16, 3),
        free_groups(2104, 16, 1), HUB,
    ],
    ids=str,
)  # fmt: skip
def test_other_shapes(wiring, dtype, monkeypatch):
    """Every path that an H200 would take, whatever its kernels are written in."""
    monkeypatch.setattr(blocks, "MANY", 0)
    pretend(monkeypatch, apart=wiring.n % 3 == 0)
    for prepared in (False, True):
        check(wiring, 1, 5, dtype, BOUNDS[dtype] * max(1, wiring.n_layers / 12), prepared, CPU)


@needs_compiler
@pytest.mark.parametrize("name", ["butterfly", "groups", "half groups", "blocks"])
def test_vectors_of_any_size(name, monkeypatch):
    """Each vector has a size of its own. No result is off by more than rounding and n subnormal steps."""
    wiring, _, _, dtype, prepared, _ = CASES[name]
    exponents = torch.tensor([-140, -120, -100, -60, 0, 60, 100, 120])[:, None]
    # Tensor cores round between two rounds: there bf16's smallest numbers lose digits.
    if dtype == torch.bfloat16:
        exponents = exponents.clamp(-100, 110)
    angles, d, x, _ = problem(wiring, 1, len(exponents), dtype, CPU)
    x = (x.double() / 4 * 2.0**exponents).to(dtype)
    moderate = x.double() / 2.0**exponents  # as the dtype has kept them
    pretend(monkeypatch)
    tables = gpu.prepare(wiring, angles, d) if prepared else None
    theta = angles.double()
    found = {
        "to basis": (
            gpu.rotate(wiring, angles, x, True, tables),
            reference.rotate(wiring, theta, moderate, True),
        ),
        "from basis": (
            gpu.rotate(wiring, angles, x, False, tables),
            reference.rotate(wiring, theta, moderate),
        ),
        "symmetric": (
            gpu.symmetric(wiring, angles, d, x, tables),
            reference.symmetric(wiring, theta, d.double(), moderate),
        ),
    }
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    for form, (y, exact) in found.items():
        error = (y.double() / 2.0**exponents - exact).norm(dim=-1)
        allowed = BOUNDS[dtype] * 2 * exact.norm(dim=-1) + wiring.n * step / 2.0 ** exponents[:, 0]
        assert (error <= allowed).all(), (form, error / allowed)
