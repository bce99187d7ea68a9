"""The Gluon kernel for products, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@needs_compiler
@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("form", ["Q x", "Qᵀ x", "Q D Qᵀ x"])
def test_half_precision_vectors_stay_in_registers(form, growing):
    """Between four groups, a sweep exchanges its numbers three times through shared memory. Beside that, only the
    largest number of each vector is exchanged: at both ends, threads read and write their own numbers.
    """
    from swallowtail.kernels.gpu.gluon.rotate import whole_rotate_kernel

    rows, sweeps = (4, 2) if form == "Q D Qᵀ x" else (8, 1)
    constants = {
        "TO_BASIS": form != "Q x", "FROM_BASIS": form != "Qᵀ x", "MIDDLE": True, "GROWING": growing, "FAST": True,
        "DEPTH": 1, "EVEN": True, "GROUPS": 4, "BITS": 10, "ROWS": rows, "WARPS": 4,
    }  # fmt: skip
    assembly = compile_for_h200(whole_rotate_kernel, 4, constants, {"x_ptr": "*bf16", "y_ptr": "*bf16"}).asm[
        "ptx"
    ]
    stored = assembly.count("st.shared") + assembly.count("stmatrix")
    exchanged = sweeps * 3 * (rows * 1024 // 128) // 4
    assert exchanged < stored <= exchanged + rows + 3
