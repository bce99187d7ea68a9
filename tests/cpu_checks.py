"""What the tests of the CPU kernels share: cases, checks against the reference, processes of their own."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from backend_contract import check_backend
from cases import DTYPES, FEW, WIDE, WIRINGS

from swallowtail import Butterfly, Pairs
from swallowtail.kernels.cpu import backend as cpu

EVERY = pytest.mark.parametrize("name", WIRINGS)


SOME = pytest.mark.parametrize("name", FEW)


ROWS = pytest.mark.parametrize("m", [0, 1, 2, 3, 33])


IN_EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


IN_WIDE_DTYPES = pytest.mark.parametrize("dtype", WIDE, ids=str)


def check_all(wiring, dtype, B, m):
    """The promises of every back end, for this one."""
    check_backend(cpu, wiring, dtype, B, m)


def nearly_right(n_rotations, generator):
    """Angles within 1e-8 … 1e-1 of 90°."""
    distance = 10.0 ** -(1 + 7 * torch.rand(n_rotations, generator=generator, dtype=torch.float64))
    sign = torch.randint(0, 2, (n_rotations,), generator=generator) * 2 - 1
    return sign * (math.pi / 2 - distance)


def mixed(n_rotations, generator):
    kinds = [torch.zeros(n_rotations), torch.full((n_rotations,), math.pi / 2), nearly_right(n_rotations, generator),
             torch.full((n_rotations,), math.pi / 4), torch.rand(n_rotations, generator=generator) * 6 - 3]  # fmt: skip
    choice = torch.randint(0, len(kinds), (n_rotations,), generator=generator)
    return torch.stack([kind.double() for kind in kinds])[choice, torch.arange(n_rotations)]


EXTREME_ANGLES = {
    "zero": lambda k, g: torch.zeros(k, dtype=torch.float64),
    "right": lambda k, g: torch.full((k,), math.pi / 2, dtype=torch.float64),
    "minus right": lambda k, g: torch.full((k,), -math.pi / 2, dtype=torch.float64),
    "nearly right": nearly_right,
    "half turns": lambda k, g: torch.full((k,), math.pi, dtype=torch.float64),
    "hadamard": lambda k, g: torch.full((k,), math.pi / 4, dtype=torch.float64),
    "sixty degrees": lambda k, g: torch.full((k,), math.pi / 3, dtype=torch.float64),
    "large": lambda k, g: 1000 * torch.randn(k, generator=g, dtype=torch.float64),
    "mixed": mixed,
}


DEEP = {"butterfly": Butterfly(64, 16), "butterfly-odd": Butterfly(100, 6), "pairs": Pairs(24, list(
    np.random.default_rng(0).permuted(np.tile(np.arange(24), (80, 1)), axis=1).reshape(80, 12, 2)))}  # fmt: skip


ON_DEEP = pytest.mark.parametrize("wiring", DEEP.values(), ids=DEEP.keys())


def error(actual, exact):
    """Relative, in norm, in extended precision."""
    difference = actual.numpy().astype(np.longdouble) - exact
    return float(np.sqrt((difference**2).sum() / np.maximum((exact**2).sum(), np.finfo(np.longdouble).tiny)))


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
