"""Products in half precision by rounds of groups of 16, on a GPU; their matrices also in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from interpreter import DEVICE, needs_gluon, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check, problem
from kernels.gpu.grouping import free_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import half_rounds
from swallowtail.kernels.gpu.half_plan import SPARE
from swallowtail.wiring import Butterfly

BOUNDS = {torch.float16: 6.5e-4, torch.bfloat16: 4.5e-3}
WIRINGS = {
    "groups": free_groups(784, 16, 3), "small": free_groups(520, 16, 2), "wide": free_groups(2104, 16, 2),
    "long": free_groups(4096, 16, 2),
}  # fmt: skip


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


@needs_kernels
@pytest.mark.parametrize("form", ["to_basis", "from_basis", "symmetric"])
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("wiring", [Butterfly(64), free_groups(40, 16, 2)], ids=["butterfly", "groups"])
def test_matrices_make_the_product(wiring, dtype, form):
    """The tables walked through in NumPy, in the order in which the kernel does the steps."""
    angles, d, x, _ = problem(wiring, 1, 3, torch.float32)
    made = half_rounds.make(wiring, angles, d if form == "symmetric" else None, form, dtype)
    sweep = made.sweep
    order = list(range(sweep.plan.steps))
    if form == "symmetric":
        order += order[: sweep.plan.inner][::-1]
    elif form == "from_basis":
        order = order[::-1]
    assert len(order) == sweep.steps
    lane, k = np.divmod(np.arange(32 * 4), 4)
    parts = made.matrices.cpu().double().numpy().reshape(sweep.steps, sweep.plan.warps, 32, made.parts, 4, 2)
    y = x[0].cpu().double().numpy().T.copy()
    coordinates = sweep.plan.coordinates.reshape(sweep.plan.steps, sweep.plan.warps, 16)
    for s, step in enumerate(order):
        for w in range(sweep.plan.warps):
            matrix = np.zeros((16, 16))
            for half in range(2):
                row, column = lane // 4 + k % 2 * 8, lane % 4 * 2 + k // 2 * 8 + half
                matrix[row, column] = parts[s, w].sum(1)[lane, k, half]
            own = coordinates[step, w]
            y[own[own >= 0]] = (matrix @ np.where(own[:, None] >= 0, y[own], 0.0))[own >= 0]
    gain = 0 if made.gain is None else int(made.gain)
    theta, x = angles.double(), x.double()
    if form == "symmetric":
        expected = reference.symmetric(wiring, theta, d.double(), x)
    else:
        expected = reference.rotate(wiring, theta, x, form == "to_basis")
    found = torch.tensor(y.T * 2.0**gain)[None].to(DEVICE)
    assert_close(found, expected, 1e-6 if made.parts == 2 else 1e-3, form)


@needs_gluon
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("name", "prepared"), [("groups", True), ("small", False), ("wide", False), ("long", True)]
)
def test_every_function(name, prepared, dtype, monkeypatch):
    taken = []
    apply = half_rounds.apply
    monkeypatch.setattr(half_rounds, "apply", lambda *a, **k: (taken.append(a), apply(*a, **k))[1])
    check(WIRINGS[name], 1, 70, dtype, BOUNDS[dtype], prepared)
    assert taken


@needs_gluon
@pytest.mark.parametrize(("dtype", "scale"), [
    (torch.bfloat16, 1e-38), (torch.bfloat16, 1e-20), (torch.bfloat16, 1e36), (torch.bfloat16, 0.0),
    (torch.float16, 3e-5), (torch.float16, 1e3),
])  # fmt: skip
def test_vectors_of_any_size(dtype, scale):
    """One vector of a tile is far from the others. Beside a rotation's, the error of a number that small may count."""
    wiring = WIRINGS["groups"]
    angles, _, x, _ = problem(wiring, 1, 40, dtype)
    x[0, 3] *= scale
    y = gpu.rotate(wiring, angles, x, prepared=gpu.prepare(wiring, angles))
    expected = reference.rotate(wiring, angles.double(), x.double())
    step = {torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24}[dtype]
    for row, truth in zip(y[0].double(), expected[0], strict=True):
        assert (row - truth).norm() <= BOUNDS[dtype] * truth.norm() + step * wiring.n


@needs_gluon
def test_what_is_not_finite_stays_in_its_vector():
    wiring = WIRINGS["groups"]
    angles, _, x, _ = problem(wiring, 1, 40, torch.bfloat16)
    x[0, 5, 7], x[0, 9, 11] = torch.inf, torch.nan
    y = gpu.rotate(wiring, angles, x, prepared=gpu.prepare(wiring, angles))
    bad = ~torch.isfinite(y[0]).all(1)
    assert bad.nonzero().flatten().tolist() == [5, 9]


@needs_gluon
def test_addresses_off_a_boundary():
    wiring = WIRINGS["groups"]
    angles, _, x, _ = problem(wiring, 1, 5, torch.bfloat16)
    odd = torch.empty(x.numel() + 1, dtype=x.dtype, device=DEVICE)[1:].view(x.shape).copy_(x)
    prepared = gpu.prepare(wiring, angles)
    assert torch.equal(
        gpu.rotate(wiring, angles, odd, prepared=prepared), gpu.rotate(wiring, angles, x, prepared=prepared)
    )


@pytest.mark.parametrize("parts", half_rounds.TILES)
def test_tiles_fit_into_shared_memory(parts):
    """As many programs as are said to be there at a time: rows, the words after them, and the entries."""
    for most, tile in half_rounds.TILES[parts].items():
        columns = 8 * tile.units
        entries = -(-(most - SPARE) // columns) * columns // 32
        used = most * tile.lanes * 2 + 512 + 128 * entries
        assert used <= 232448
        # What a multiprocessor has, and takes for each program.
        assert tile.programs * (used + 1024) <= 233472


@needs_gluon
@pytest.mark.parametrize("n", [1024, 2048, 4096, 16384])
def test_products_with_column_blocks(n):
    """Q D Qᵀ of butterflies; from 8192 on, rounds are between strided passes."""
    wiring = Butterfly(n)
    angles, d, x, _ = problem(wiring, 1, 1200, torch.bfloat16)
    y = gpu.symmetric(wiring, angles, d, x, gpu.prepare(wiring, angles, d))
    expected = reference.symmetric(wiring, angles.double(), d.double(), x.double())
    assert_close(y, expected, BOUNDS[torch.bfloat16], "symmetric")


@needs_kernels
def test_column_blocks_have_matrices_of_their_own():
    """Those of every block are as if it stood alone."""
    wiring = Butterfly(64)
    angles, d, _, _ = problem(wiring, 3, 1, torch.float32)
    d[1] *= 1e-9  # of one power of two for all, nothing would be left of these in fp16
    together = half_rounds.make(wiring, angles, d, "symmetric", torch.bfloat16)
    for k in range(3):
        alone = half_rounds.make(wiring, angles[k : k + 1], d[k : k + 1], "symmetric", torch.bfloat16)
        assert torch.equal(together.matrices[k], alone.matrices[0])
        assert together.gain[k] == alone.gain[0]
