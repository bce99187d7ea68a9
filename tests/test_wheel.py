"""The wheel is pure Python, holds every module, and runs from its own files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import sys
import torch
import swallowtail as st
from swallowtail.cli import main
assert st.__file__.startswith(sys.argv[1]), st.__file__
Q = st.Rotation.random(8, seed=0)
x = torch.ones(8)
torch.testing.assert_close(Q.T(Q(x)), x)
main(["--version"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, capture_output=True, cwd=ROOT, timeout=120)
    (path,) = folder.glob("*.whl")
    return path


def test_it_is_pure_python_and_holds_every_module(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert wheel.name.endswith("-py3-none-any.whl")
    assert modules <= names
    assert {name for name in names if not name.startswith("swallowtail")} == set()


def test_an_index_can_show_the_long_description(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    head, _, text = archive.read(name).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    assert text.startswith("# swallowtail\n")
    assert "Recipes (`docs/recipes.md`)" in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert all(target.startswith("https://") for target in targets)


def test_it_runs_from_its_own_files(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("swallowtail ")


# What each extra brings, tried in this order: the later ones find the packages of the earlier ones.
EXTRAS = {
    "gpu": "import triton",
    "gp": "H.to_linear_operator()",
    "plot": "st.fit_symmetric(H.to_dense().numpy()).plot()",
    "sklearn": "st.GivensCovariance().fit(rows).score(rows)",
    "dask": "import dask.array as da; st.GivensCovariance().fit(da.from_array(rows, chunks=20))",
    "peft": "import swallowtail.integrations.peft",
}
BEGIN = """
import numpy as np, torch, swallowtail as st
H = st.SymmetricOperator(st.Rotation.random(8, seed=0), torch.arange(1.0, 9.0))
rows = np.random.default_rng(0).standard_normal((60, 4))
"""


@pytest.mark.extras
def test_it_installs_in_an_empty_environment_without_and_with_each_extra(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments, seconds=300):
        command = [python, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=seconds, env=environment
        )

    assert run("-m", "pip", "install", "--quiet", str(wheel), seconds=900).returncode == 0
    done = run("-c", PROGRAM.replace("sys.argv[1]", repr(str(tmp_path / "venv"))))
    assert done.returncode == 0, done.stderr
    assert 'pip install "swallowtail[sklearn]"' in run("-c", BEGIN + EXTRAS["sklearn"]).stderr
    for extra, use in EXTRAS.items():
        assert run("-m", "pip", "install", "--quiet", f"{wheel}[{extra}]", seconds=900).returncode == 0, extra
        done = run("-c", BEGIN + use)
        assert done.returncode == 0, f"{extra}: {done.stderr}"
