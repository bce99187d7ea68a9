"""The public surface, frozen: a name added or lost is a decision, made here."""

import importlib
import os
import re
import subprocess
import sys

import pytest

import swallowtail

NAMES = {
    "swallowtail": """
        Butterfly Pairs Rotation SignedRotation SymmetricOperator
        available_backends select_backend use_backend
        load save nn optim
        FitResult GivensCovariance GivensMixture GivensNormal HybridOperator Tracker
        error_angle fit_rotation fit_symmetric random_rotation random_symmetric
    """,
    "swallowtail.operators": "HybridOperator Rotation SignedRotation SymmetricOperator",
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(NAMES[module].split())
    assert list(found.__all__) == sorted(found.__all__)
    for name in found.__all__:
        assert hasattr(found, name), name


def test_everything_public_has_a_docstring():
    for name in swallowtail.__all__:
        assert getattr(swallowtail, name).__doc__, name


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", swallowtail.__version__)


def test_import_brings_no_optional_package():
    """Nor does it compile or start anything: optional packages are imported when they are used."""
    optional = ("linear_operator", "sklearn", "matplotlib", "triton")
    program = f"""
import sys, torch
before = set(sys.modules)
import swallowtail
print([name for name in {optional} if name in set(sys.modules) - before])
"""
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", program]
    out = subprocess.run(command, env={**os.environ, **path}, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
