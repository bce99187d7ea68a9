"""Triton tests: on the GPU where there is one, else in Triton's interpreter, in a process of its own.

The interpreter is chosen when kernels are defined, so without a GPU a test file runs itself again with it; its other
tests are skipped in the first process.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
RUNS_HERE = INTERPRETED or torch.cuda.is_available()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
needs_kernels = pytest.mark.skipif(
    not RUNS_HERE, reason="no GPU: runs in the process of test_in_the_interpreter"
)
only_without_kernels = pytest.mark.skipif(RUNS_HERE, reason="the tests run in this process")

if INTERPRETED:
    from triton.runtime import interpreter

    _patch_tensor = interpreter._patch_lang_tensor

    def _patch_with_index(tensor, scope):
        """NumPy 2.4 no longer takes an array of one element for an integer; Triton 3.6's loop bounds are such."""
        _patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patch_with_index


def run_interpreted(file: str) -> None:
    """Run a test file in the interpreter."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
