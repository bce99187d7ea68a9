"""The kernels that fit groups, compiled for an H200; `test_matrices` and `test_grouped` have their numbers."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler
from optim.adam.gpu.test_group_kernels import KINDS, SHARED

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.optim.adam.gpu import fit_kernels, matrices


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "constants"),
    [
        ("multiply_kernel", {"FURTHER": True, "SIZE": 128, "COLS": matrices.COLUMNS}),
        ("change_kernel", {"SIZE": 128, "COLS": matrices.COLUMNS}),
        ("replace_kernel", {"SIZE": 128}),
        ("householder_kernel", {"FURTHER": False, "SIZE": 32}),
    ],
)
def test_compiled(kernel, constants):
    found = compile_for_h200(getattr(fit_kernels, kernel), matrices.WARPS, constants, KINDS)
    assert found.metadata.shared <= SHARED
