"""Every test starts from the same seed, and memory the package leaves unwritten reads as NaN."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch
from hypothesis import settings
from interpreter import INTERPRETED, needs_kernels

from swallowtail.kernels.cpu import coefficients, launch

# The same examples every time, so that a failure is the change's; HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests that want threads ask for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Fill every uninitialised array and tensor the package makes with NaN: an unwritten lane then fails."""
    monkeypatch.setattr(torch, "empty", _poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", _poisoned(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", _poisoned(torch.Tensor.new_empty))
    for module in (coefficients, launch):  # not NumPy itself: Numba must know np.empty when it compiles
        monkeypatch.setattr(module, "np", _PoisonedNumpy())


class _PoisonedNumpy:
    def __getattr__(self, name):
        return _poisoned(np.empty) if name == "empty" else getattr(np, name)


def _poisoned(make):
    def wrapper(*args, **kwargs):
        result = make(*args, **kwargs)
        if torch.compiler.is_compiling() or not _called_by_the_package():
            return result
        if isinstance(result, np.ndarray):
            if result.dtype.kind == "f":
                result.fill(np.nan)
        elif type(result) is torch.Tensor and result.is_floating_point() and result.device.type != "meta":
            with torch.no_grad():
                result.fill_(torch.nan)
        return result

    return wrapper


def _called_by_the_package() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("swallowtail")


def pytest_collection_modifyitems(items):
    if INTERPRETED:  # only what the first process leaves to this one
        items[:] = [item for item in items if needs_kernels.mark in item.iter_markers("skipif")]
    if not torch.cuda.is_available():
        absent = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):  # not `keywords`: those hold the folders' names too
                item.add_marker(absent)
