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
        Butterfly Grouped Pairs Rotation SignedRotation SymmetricOperator HybridOperator LowRank
        available_backends select_backend use_backend
        ArgumentError hessian load save datasets gaussians nn optim
        Estimate FitResult Stop Tracker error_angle fit_rotation fit_symmetric random_orthogonal random_symmetric
        GivensCovariance GivensDiscriminant GivensLaplace GivensMixture GivensNormal
        conditional conjugate_gradients linear_regression log_determinant marginal product
    """,
    "swallowtail.fitting": "FitResult Rival Stop Tracker fit_rotation fit_symmetric",
    "swallowtail.gaussians": """
        GivensCovariance GivensDiscriminant GivensLaplace GivensMixture GivensNormal
        conditional conjugate_gradients linear_regression log_determinant marginal product
        Conditional Predictive Product Regression Solution
        MixtureStatistics RowStatistics fit_distributed
    """,
    "swallowtail.operators": "HybridOperator LowRank Rotation SignedRotation SymmetricOperator",
}  # fmt: skip
ESTIMATORS = ("GivensCovariance", "GivensDiscriminant", "GivensMixture")  # they need scikit-learn


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(NAMES[module].split())
    assert list(found.__all__) == sorted(found.__all__)
    assert set(found.__all__) <= set(dir(found))
    for name in found.__all__:
        assert hasattr(found, name), name


@pytest.mark.parametrize("module", ["swallowtail", "swallowtail.gaussians"])
def test_everything_public_has_a_docstring(module):
    found = importlib.import_module(module)
    for name in found.__all__:
        assert getattr(found, name).__doc__, name


@pytest.mark.parametrize("module", ["swallowtail", "swallowtail.gaussians"])
def test_other_names_are_attribute_errors(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Givens'"):
        _ = importlib.import_module(module).Givens


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", swallowtail.__version__)


def run(program):
    """What a fresh interpreter prints."""
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **path}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return out.stdout.strip()


def test_import_brings_no_optional_package():
    """Nor does it compile or start anything: optional packages are imported when they are used."""
    optional = ("linear_operator", "sklearn", "matplotlib", "triton")
    program = f"""
import sys, torch
before = set(sys.modules)
import swallowtail
dir(swallowtail), dir(swallowtail.gaussians)
print([name for name in {optional} if name in set(sys.modules) - before])
"""
    assert run(program) == "[]"


def test_without_scikit_learn():
    program = f"""
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import swallowtail
from swallowtail import *
from swallowtail.gaussians import *
assert GivensNormal is swallowtail.GivensNormal and GivensLaplace and linear_regression
for name in {ESTIMATORS}:
    assert name not in dir(swallowtail) and name not in dir(swallowtail.gaussians)
    for module in (swallowtail, swallowtail.gaussians):
        try:
            getattr(module, name)
        except ImportError as error:
            print(error)
"""
    lines = run(program).splitlines()
    text = '{} needs scikit-learn, which is not installed; try: pip install "swallowtail[sklearn]"'
    assert lines == [text.format(name) for name in ESTIMATORS for _ in range(2)]
