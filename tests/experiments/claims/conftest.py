"""An operator small enough to count by hand."""

import pytest
import torch

import swallowtail as st


@pytest.fixture
def four():
    angles = torch.tensor([0.3, -1.2, 2.0, 0.7], dtype=torch.float64)
    eigenvalues = torch.tensor([1.0, 0.5, 2.0, -0.3], dtype=torch.float64)
    return st.SymmetricOperator(st.Rotation(st.Butterfly(4), angles), eigenvalues)
