"""The matrices of blocks."""

from __future__ import annotations

import pytest
import torch
from interpreter import needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem
from kernels.gpu.grouping import fixed_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu.group_tables import GroupTables


@needs_kernels
@pytest.mark.parametrize("symmetric", [False, True])
def test_matrices_are_the_images_of_unit_vectors(symmetric):
    wiring = fixed_groups(80, 40, 2)
    angles, d, x, _ = problem(wiring, 1, 1, torch.float32)
    made = GroupTables(wiring, angles, d).get(symmetric, torch.float32)
    unit = torch.eye(80, dtype=torch.float64, device=x.device)[None]
    exact = angles.double(), d.double(), unit
    columns = reference.symmetric(wiring, *exact) if symmetric else reference.rotate(wiring, exact[0], unit)
    assert made.matrices.shape == (2, 64, 64)
    for block, start in zip(made.matrices, (0, 40), strict=True):
        inside = slice(start, start + 40)
        assert_close(block[:40, :40], columns[0, inside, inside].T, 1e-6, "matrix")
        assert not block[:40, 40:].any()


@needs_kernels
def test_matrices_are_made_once():
    wiring = fixed_groups(32, 16, 1)
    angles, d, _, _ = problem(wiring, 1, 1, torch.float32)
    tables = GroupTables(wiring, angles, d)
    assert tables.get(False, torch.float16) is tables.get(False, torch.float16)
    assert tables.get(True, torch.float16).gain is not None
    assert tables.get(True, torch.bfloat16).gain is None
