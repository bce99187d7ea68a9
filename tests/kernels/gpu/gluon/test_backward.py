"""The Gluon kernel for gradients, compiled for an H200."""

from __future__ import annotations

import pytest
from interpreter import compile_for_h200, needs_compiler

pytest.importorskip("triton", reason="the GPU back end needs Triton")


@needs_compiler
@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_sums_stay_in_registers(growing, half):
    """Compiling proves that stages move nothing between threads (``assert_trivial``). Exchanges go through shared
    memory: two of y, two of g, or two of both in one word; and one where the lowest group reads (both) or writes (g).
    There is no other.
    """
    from swallowtail.kernels.gpu.gluon.backward import whole_backward_kernel

    constants = {
        "TRANSPOSE": True,
        "GROWING": growing,
        "EVEN": not half,
        "GROUPS": 3,
        "BITS": 10,
        "PACKED": half,
        "WORDS": half,
        "WARPS": 2,
    }
    vectors = dict.fromkeys(("y_ptr", "g_ptr", "out_ptr"), "*bf16" if half else "*fp32")
    vectors |= {"u_ptr": "*i32"} if half else {}
    assembly = compile_for_h200(whole_backward_kernel, 2, constants, vectors).asm["ptx"]
    stored = assembly.count("st.shared") + assembly.count("stmatrix")
    # Sixteen-byte stores: 32 numbers per thread of y and of g, in float32; half the bytes at the ends in bfloat16.
    exchanged, at_the_end = (2 if half else 4) * 32 // 4, (2 if growing else 1) * (4 if half else 8)
    assert stored == exchanged + at_the_end
