"""Run a task in a process of its own, for a time limit or for its own peak of memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from benchmarks.common.rows import Row

ONE_CORE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def apart(task: Row, limit: float) -> Row | None:
    """The answer of a task of `benchmarks.fitting.task`; None if it took more than ``limit`` processor seconds."""
    command = [sys.executable, "-m", "benchmarks.fitting.task", json.dumps(task | {"limit": int(limit)})]
    try:
        done = subprocess.run(
            command, env=os.environ | ONE_CORE, capture_output=True, text=True, timeout=10 * limit, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as error:
        if error.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None
        raise RuntimeError(f"{task}: {error.stderr[-2000:]}") from error
    return json.loads(done.stdout.splitlines()[-1])
