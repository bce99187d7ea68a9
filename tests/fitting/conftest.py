"""Fixtures of the fitting tests."""

import pytest


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Leave np.empty alone: Numba looks it up while compiling and refuses a Python function in its place."""
