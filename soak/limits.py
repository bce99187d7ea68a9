"""Full disks, homes that cannot be written to, little memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swallowtail as st
from soak.trial import Outcome, Outcomes, Trial, in_child
from swallowtail import Rotation, SymmetricOperator
from swallowtail.cli import main
from swallowtail.fitting import checkpoint

BATCH = 40


def _full_disks(seed: int) -> Outcomes:
    """A limit on the size of files, which acts like a disk that is full after so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    checkpoint.EVERY, checkpoint.SHARE = 0.0, np.inf
    rng, H = np.random.default_rng(seed), st.random_symmetric(16, 4, 0)
    old, new = (SymmetricOperator(Rotation.random(64, seed=s), np.ones(64)) for s in (0, 1))
    expected = st.fit_symmetric(H).relative_error
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        np.save(folder / "H.npy", H)
        np.save(folder / "X.npy", np.ones((64, 30)))
        st.save(old, folder / "q.safetensors")
        np.save(folder / "y.npy", np.zeros(3))

        def saved() -> Outcome:
            try:
                st.save(new, folder / "q.safetensors")
            except OSError:
                found = st.load(folder / "q.safetensors")
                return (
                    None
                    if torch.equal(found.rotation.angles, old.rotation.angles)
                    else "the old file is damaged"
                )
            st.save(old, folder / "q.safetensors")
            return None

        def applied() -> Outcome:
            before = (folder / "y.npy").read_bytes()
            code, text = _command("apply", "q.safetensors", "X.npy", "-o", "y.npy")
            if "Traceback" in text:
                return text
            return (
                None
                if code == 0 or (folder / "y.npy").read_bytes() == before
                else "the old output is damaged"
            )

        def fitted() -> Outcome:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the checkpoint cannot be written
                result = st.fit_symmetric(H, checkpoint=folder / "fit")
            (folder / "fit").unlink(missing_ok=True)
            return None if result.relative_error == expected else "another answer"

        def fitted_by_command() -> Outcome:
            code, text = _command("fit", "H.npy", "--quiet", "-o", "h.safetensors")
            return text if "Traceback" in text or (code == 0) != (folder / "h.safetensors").exists() else None

        works: list[Callable[[], Outcome]] = [saved, applied, fitted, fitted_by_command]
        for _ in range(BATCH):
            work, size = works[int(rng.integers(len(works)))], int(rng.integers(1, 6000))
            (folder / "h.safetensors").unlink(missing_ok=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                outcome = work()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            left = [p.name for p in folder.iterdir() if p.name.startswith(st.atomic.PREFIX)]
            yield (
                f"seed {seed}, {size} bytes, {work.__name__}: {outcome or left}" if outcome or left else None
            )


def _command(*words: str) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    return code, err.getvalue()


def _little_memory(seed: int) -> Outcomes:
    """A limit on the address space: an error that says so, and right results afterwards."""
    rng, free = np.random.default_rng(seed), resource.RLIM_INFINITY
    Q = Rotation.random(4096, seed=0)
    x = torch.randn(4096, dtype=Q.dtype)
    expected = Q(x)
    for _ in range(BATCH):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        room = int(10 ** rng.uniform(5, 8.5))
        resource.setrlimit(resource.RLIMIT_AS, (now + room, free))
        try:
            fault = _memory_fault(rng, Q)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (free, free))
        if fault is None and not torch.equal(Q(x), expected):
            fault = "another result afterwards"
        yield None if fault is None else f"seed {seed}, {room} bytes: {fault}"


def _memory_fault(rng: np.random.Generator, Q: Rotation) -> Outcome:
    works: list[Callable[[], Any]] = [
        lambda: Q(torch.ones(3000, 4096, dtype=Q.dtype)),
        lambda: Q.to_dense(),
        lambda: Rotation.random(2**20, seed=0),
        lambda: st.fit_symmetric(np.eye(300) + 1.0, max_seconds=0.2),
    ]
    try:
        works[int(rng.integers(len(works)))]()
    except (MemoryError, RuntimeError, ValueError) as error:
        text = str(error).lower()
        expected = isinstance(error, MemoryError) or "memory" in text or "alloc" in text or "thread" in text
        return None if expected else f"{type(error).__name__}: {error}"
    return None


HOME = """
import warnings; warnings.simplefilter("ignore")
import numpy as np, swallowtail as st
Q = st.Rotation.random(16, seed=0)
assert np.allclose(Q.T @ (Q @ np.ones(16)), 1)
"""


def _homes(seed: int) -> Outcomes:
    """No home, no cache and no folder for temporary files can be written to: slower, but right."""
    source = str(Path(st.__file__).parents[1])
    places = {
        "HOME": "/proc/none",
        "XDG_CACHE_HOME": "/proc/none",
        "TMPDIR": "/proc/none",
        "NUMBA_CACHE_DIR": "/proc/none",
    }
    while True:
        for names in (tuple(places), ("HOME", "XDG_CACHE_HOME"), ("NUMBA_CACHE_DIR",)):
            environment = {**os.environ, "PYTHONPATH": source, **{name: places[name] for name in names}}
            done = subprocess.run(
                [sys.executable, "-c", HOME],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=900,
            )
            yield None if done.returncode == 0 else f"{names}: {done.stderr[-300:]}"


def _outcomes(work: Callable[[int], Outcomes], seed: int) -> Outcomes:
    while True:
        yield from in_child(lambda seed=seed: work(seed), timeout=240)
        seed += 1


TRIALS = (
    Trial("full disks", lambda seed: _outcomes(_full_disks, seed), 400, 0.04),
    Trial("little memory", lambda seed: _outcomes(_little_memory, seed), 400, 0.03),
    Trial("homes that cannot be written to", _homes, 6, 0.04),
)
