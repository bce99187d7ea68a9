"""What the tests of the CPU kernels share."""

from __future__ import annotations

import os
import subprocess
import sys


def environment(**changes):
    """This process's environment, with the package importable and one thread."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        **changes,
    }


def run_program(program, *arguments, timeout=120, warnings="error", **changes):
    """Run Python source in a process of its own. Returns what `subprocess.run` does, with text."""
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", program, *arguments],
        env=environment(**changes), capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
