"""Gluon kernels are compiled for an H200, here too where there is none: Triton's interpreter cannot run them."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("triton", reason="the GPU back end needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1",
    reason="the interpreter defines kernels that cannot be compiled",
)


def compiled(kernel, warps: int, constants: dict, half: tuple[str, ...] = ()):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    names = kernel.arg_names
    kind = lambda name: "*bf16" if name in half else "*fp32" if name.endswith("_ptr") else "i32"
    signature = {name: "constexpr" if name in constants else kind(name) for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name not in constants}
    source = GluonASTSource(kernel, signature, places, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_backward_with_held_sums(up, half):
    """Compiling proves that stages move nothing between threads (``assert_trivial``). Exchanges: two of y, two of g,
    and one where the lowest group reads (both) or writes (one), through shared memory; no other.
    """
    from swallowtail.kernels.gpu.gluon.backward import backward_kernel

    constants = {"TRANSPOSE": True, "UP": up, "EVEN": not half, "GROUPS": 3, "BITS": 10, "WARPS": 2}
    vectors = ("y_ptr", "g_ptr", "out_ptr") if half else ()
    assembly = compiled(backward_kernel, 2, constants, vectors).asm["ptx"]
    stored = assembly.count("st.shared") + assembly.count("stmatrix")
    # Sixteen-byte stores: 32 numbers a thread of y and of g, in float32; half as many bytes at the ends in bfloat16.
    exchanged, at_the_end = 4 * 32 // 4, (2 if up else 1) * (4 if half else 8)
    assert stored == exchanged + at_the_end


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("form", ["Q x", "Qᵀ x", "Q D Qᵀ x"])
def test_half_precision_held_whole(form, up):
    """Between four groups a sweep exchanges its numbers three times, through shared memory; nothing else does, and at
    both ends threads read and write for themselves.
    """
    from swallowtail.kernels.gpu.gluon.rotate import rotate_kernel

    rows, sweeps = (4, 2) if form == "Q D Qᵀ x" else (8, 1)
    constants = {
        "TO_BASIS": form != "Q x", "FROM_BASIS": form != "Qᵀ x", "MIDDLE": True, "UP": up, "FAST": True, "DEPTH": 1,
        "EVEN": True, "GROUPS": 4, "BITS": 10, "ROWS": rows, "WARPS": 4,
    }  # fmt: skip
    assembly = compiled(rotate_kernel, 4, constants, ("x_ptr", "y_ptr")).asm["ptx"]
    stored = assembly.count("st.shared") + assembly.count("stmatrix")
    assert stored == sweeps * 3 * (rows * 1024 // 128) // 4
