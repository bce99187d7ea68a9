"""The quickest ways to a result: which tensors they take, and what they keep."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import calls
from swallowtail.wiring import Butterfly


def multiplied(wiring, form, prepared, x, angles, eigenvalues):
    return x * angles.sum() * (1 if eigenvalues is None else eigenvalues)


def test_live_takes_contiguous_tensors_only():
    wiring, x, angles = Butterfly(4), torch.ones(3, 4), torch.ones(8)
    assert torch.equal(calls.live(multiplied, wiring, "from_basis", x, angles[:4], None), 4 * x)
    assert calls.live(multiplied, wiring, "from_basis", x, angles[::2], None) is None
    assert calls.live(multiplied, wiring, "symmetric", x, angles[:4], torch.ones(8)[::2]) is None


def test_a_copy_of_a_wiring_starts_without_recordings():
    wiring = Butterfly(4)
    calls.live(multiplied, wiring, "from_basis", torch.ones(3, 4), torch.ones(4), None)
    assert "calls" in wiring.derived
    for other in (copy.deepcopy(wiring), pickle.loads(pickle.dumps(wiring))):
        assert other == wiring
        assert other.derived == {}
