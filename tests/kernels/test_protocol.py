"""A back end is added with one module and one line of the table: tried with a toy."""

import sys
import types

import pytest
import torch
from backend_contract import check_backend
from cases import FEW, WIRINGS, normal, random_angles

from swallowtail import Butterfly, Rotation, SymmetricOperator, kernels, nn, select_backend, use_backend
from swallowtail.kernels import protocol, reference
from swallowtail.kernels.cpu import backend as cpu
from swallowtail.kernels.gpu import backend as gpu

MEMBERS = [name for name in vars(protocol.Backend) if not name.startswith("_")] + list(
    protocol.Backend.__annotations__
)


@pytest.mark.parametrize("module", [reference, cpu, gpu], ids=["reference", "cpu", "gpu"])
def test_every_back_end_offers_everything(module):
    missing = [name for name in MEMBERS if not hasattr(module, name)]
    assert not missing


@pytest.fixture
def toy(monkeypatch):
    """The reference under another name. It counts its calls, and accepts no tensor unless asked for by name."""
    module = types.ModuleType("toy_backend")
    for name in MEMBERS:
        setattr(module, name, getattr(reference, name))
    module.calls = []

    def counted(name):
        function = getattr(reference, name)
        return lambda *a, **k: module.calls.append(name) or function(*a, **k)

    for name in ("rotate", "symmetric", "quadratic", "rotate_backward"):
        setattr(module, name, counted(name))
    module.accepts = lambda device: False
    monkeypatch.setitem(sys.modules, "toy_backend", module)
    monkeypatch.setitem(kernels.BACKENDS, "toy", "toy_backend")
    kernels._for_device.cache_clear()
    yield module
    kernels._import.cache_clear()
    kernels._for_device.cache_clear()


def test_a_toy_back_end(toy):
    wiring = Butterfly(6)
    angles, x, d = random_angles(wiring), normal(3, 6), normal(6, seed=3)
    assert kernels.available_backends()["toy"] is None
    assert select_backend(x) == "cpu"
    H = SymmetricOperator(Rotation(wiring, angles), d)
    layer = nn.Rotate(6, dtype=torch.float64)
    with torch.no_grad():
        layer.angles.copy_(angles)
    results = []
    for name in ("toy", "cpu"):
        with use_backend(name):
            layer.zero_grad()
            layer(x).pow(3).sum().backward()
            results.append((H(x), H.rotation(x), H.rotation.T(x), H.quadratic_form(x), layer.angles.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert set(toy.calls) == {"rotate", "symmetric", "quadratic", "rotate_backward"}


@pytest.mark.parametrize("name", FEW)
def test_it_passes_the_checks_of_every_back_end(toy, name):
    check_backend(toy, WIRINGS[name], torch.float32, B=2, m=3)


def test_a_back_end_that_accepts_is_chosen_in_the_order_of_the_table(toy, monkeypatch):
    toy.accepts = lambda device: True
    order = {"toy": "toy_backend", **kernels.BACKENDS}
    monkeypatch.setattr(kernels, "BACKENDS", order)
    assert select_backend(torch.ones(2)) == "toy"
