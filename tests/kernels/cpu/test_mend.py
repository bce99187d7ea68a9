"""Flags raised on any thread are seen, and only the vectors that left the range are done again."""

import pytest
import torch
from cases import WIRINGS, normal, random_angles

from swallowtail.kernels import reference
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.cpu import launch, mend, threads


@pytest.mark.parametrize("name", ["butterfly-64-deep", "butterfly-100-deep", "pairs-100"])
@pytest.mark.parametrize("at", [0, 150, 299])
@pytest.mark.parametrize("size", [1e-36, 1e36])
def test_one_extreme_vector_on_any_thread(name, at, size, monkeypatch):
    wiring = WIRINGS[name]
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    angles, x = random_angles(wiring, 1, dtype=torch.float32), normal(1, 300, wiring.n, dtype=torch.float32)
    x[0, at] *= size
    done_again = []
    suspect = mend.Mender._suspect
    monkeypatch.setattr(
        mend.Mender,
        "_suspect",
        lambda *a: (found := suspect(*a), done_again.extend(found.nonzero()[:, 0].tolist()))[0],
    )
    for transpose in (False, True):
        y = cpu.rotate(wiring, angles, x, transpose)
        exact = reference.rotate(wiring, angles.double(), x.double(), transpose)
        error = (y.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
        assert float(error.max()) < 3e-6
    assert set(done_again) <= {at}
    g = normal(1, 300, wiring.n, dtype=torch.float32, seed=3)
    _, grad_angles = cpu.rotate_backward(wiring, angles, x, g)
    _, exact = reference.rotate_backward(wiring, angles.double(), x.double(), g.double())
    assert float((grad_angles.double() - exact).norm() / exact.norm()) < 3e-6


def test_ordinary_vectors_raise_no_flag(monkeypatch):
    """At depth 1 nothing is looked at, let alone done again."""
    monkeypatch.setattr(mend.Mender, "mend", lambda *a: pytest.fail("mended"))
    wiring = WIRINGS["butterfly-2048"]
    angles, d = random_angles(wiring, 1, dtype=torch.float32), normal(1, wiring.n, dtype=torch.float32)
    x = normal(1, 50, wiring.n, dtype=torch.float32)
    for size in (1e-12, 1.0, 1e12):
        cpu.rotate(wiring, angles, size * x)
        cpu.rotate(wiring, angles, size * x, True)
        cpu.symmetric(wiring, angles, d, size * x)
    cpu.quadratic(wiring, angles, d, x)
