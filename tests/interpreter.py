"""Triton without a GPU: its interpreter, which runs Triton kernels, and its compiler, which compiles any for an H200.

The interpreter is chosen when kernels are defined. Without a GPU, a folder or file of tests therefore runs itself again
in a second process (`run_interpreted`); its kernel tests are skipped in the first one. All that tests need of Triton's
internals is here and in test_triton_private.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
RUNS_HERE = INTERPRETED or torch.cuda.is_available()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
needs_kernels = pytest.mark.skipif(
    not RUNS_HERE, reason="no GPU: runs in the process of test_in_the_interpreter"
)
only_without_kernels = pytest.mark.skipif(RUNS_HERE, reason="the tests run in this process")
needs_gluon = pytest.mark.skipif(
    INTERPRETED or not RUNS_HERE, reason="no GPU: the interpreter cannot run Gluon"
)
needs_compiler = pytest.mark.skipif(
    INTERPRETED, reason="the interpreter defines kernels that cannot be compiled"
)

if INTERPRETED:
    from triton.runtime import interpreter

    _patch_tensor = interpreter._patch_lang_tensor

    def _patch_with_index(tensor, scope):
        """NumPy 2.4 no longer takes an array of one element for an integer; Triton 3.6's loop bounds are such."""
        _patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patch_with_index


def run_interpreted(path: str, *options: str) -> None:
    """Run a file or folder of tests in the interpreter."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def compile_for_h200(kernel: Any, warps: int, constants: dict, pointers: dict[str, str]) -> Any:
    """Compile a Triton or Gluon kernel for an H200, with or without one; ``pointers`` not to float32."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    names = kernel.arg_names
    kind = lambda name: pointers.get(name, "*fp32" if name.endswith("_ptr") else "i32")
    signature = {name: "constexpr" if name in constants else kind(name) for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name not in constants}
    source = (GluonASTSource if kernel.is_gluon() else ASTSource)(kernel, signature, places, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
