"""Registers as wide as the machine's; another width from the same source."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from cpu_checks import environment

from swallowtail.kernels.cpu.codegen import shapes as simd

# A name alone keeps the host's features.
AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}


def test_registers_are_as_wide_as_the_cpus():
    features = llvm.get_host_cpu_features()
    if os.environ.get("NUMBA_CPU_NAME") == AVX2["NUMBA_CPU_NAME"]:
        width = 32
    else:
        width = 64 if features.get("avx512f") else 32 if features.get("avx") else 16
    assert width == simd.REGISTER_BYTES
    assert simd.lanes(32) == width // 4


@pytest.mark.skipif("NUMBA_CPU_NAME" in os.environ, reason="this is the run it starts")
@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="needs AVX2")
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.extras)])
def test_avx2_from_the_same_source(dtype):
    """A part of the tests of this folder and the one above, compiled for registers of 32 bytes."""
    some = (
        "(equals_the_reference and not 2048) or (any_number and not 33) or (fast_rotations and mixed) "
        "or sizes_round_the_width"
    )
    chosen = f"registers or {dtype} and ({some})"
    if dtype == "float32":
        chosen += " or rows_round_the_width or multiply_adds"
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", str(Path(__file__).parents[1]), "-k", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        env=environment(**AVX2), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
