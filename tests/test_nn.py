"""Rotate: trained, saved, copied, in half precision; a rotation whatever happens to it."""

import copy
import io
import math
import pickle

import pytest
import torch
from cases import WIRINGS, assert_close, normal, relative_error

from swallowtail import Butterfly, Rotation, ops
from swallowtail.nn import Rotate


def test_identity_is_the_default():
    layer, x = Rotate(12), normal(5, 12, dtype=torch.float32)
    assert torch.equal(layer.angles, torch.zeros(Butterfly(12).n_rotations))
    assert torch.equal(layer(x), x)


def test_random_angles_are_uniform_and_seeded():
    layer = Rotate(1024, init="random", seed=3)
    angles = layer.angles.detach()
    assert float(angles.min()) < -3.1
    assert float(angles.max()) > 3.1
    assert abs(float(angles.mean())) < 0.1
    assert torch.equal(layer.angles, Rotate(1024, init="random", seed=3).angles)
    assert not torch.equal(layer.angles, Rotate(1024, init="random", seed=4).angles)
    torch.manual_seed(5)
    first = Rotate(16, init="random").angles
    torch.manual_seed(5)
    assert torch.equal(first, Rotate(16, init="random").angles)


@pytest.mark.parametrize("depth", [1, 3])
def test_hadamard_is_the_rotations(depth):
    layer = Rotate(16, depth, init="hadamard")
    Q = Rotation.hadamard(16).to_dense()
    torch.testing.assert_close(layer(torch.eye(16)).T.detach(), Q)
    assert layer.angles.shape == (32 * depth,)


def test_any_wiring():
    wiring = WIRINGS["pairs-17"]
    layer = Rotate(17, wiring=wiring, init="random", seed=0)
    x = normal(3, 17, dtype=torch.float32)
    assert torch.equal(layer(x), ops.rotate(x, wiring, layer.angles))
    with pytest.raises(ValueError, match="expected one on n = 16 coordinates, got Pairs"):
        Rotate(16, wiring=wiring)
    with pytest.raises(ValueError, match="expected a butterfly on 2\\^k coordinates, got Pairs"):
        Rotate(17, wiring=wiring, init="hadamard")


def test_dtype_and_device_of_the_angles():
    assert Rotate(8, dtype=torch.float64).angles.dtype == torch.float64
    assert Rotate(8, device="meta").angles.device.type == "meta"


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_orthogonal_to_rounding_after_500_steps(optimiser):
    layer = Rotate(32, depth=2, init="random", seed=0)
    x, target = normal(16, 32, dtype=torch.float32), normal(16, 32, dtype=torch.float32, seed=9)
    optimise = optimiser(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(500):
        optimise.zero_grad()
        loss = (layer(x) - target).pow(2).mean()
        loss.backward()
        optimise.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    Q = layer(torch.eye(32)).detach().double()
    gap = torch.linalg.matrix_norm(Q @ Q.T - torch.eye(32, dtype=torch.float64), 2)
    assert gap < 4 * torch.finfo(torch.float32).eps * math.sqrt(layer.wiring.n_layers)
    assert abs(float(torch.linalg.det(Q)) - 1) < 1e-5


def test_learns_a_rotation_of_its_own_kind():
    target = Rotate(8, init="random", seed=1)
    layer = Rotate(8)
    layer.angles.data.copy_(target.angles.data + 0.3 * normal(12, dtype=torch.float32))
    x = normal(64, 8, dtype=torch.float32)
    with torch.no_grad():
        y = target(x)
    optimise = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(400):
        optimise.zero_grad()
        (layer(x) - y).pow(2).mean().backward()
        optimise.step()
    with torch.no_grad():
        assert relative_error(layer(x), y) < 1e-3


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_evaluation_between_steps_sees_the_new_angles(options):
    layer, x = Rotate(16, init="random", seed=0), normal(4, 16, dtype=torch.float32)
    optimise = torch.optim.Adam(layer.parameters(), lr=0.1, **options)
    for _ in range(3):
        layer(x)[:, 0].sum().backward()
        optimise.step()
        with torch.no_grad():
            assert torch.equal(layer(x), ops.rotate(x, layer.wiring, layer.angles.clone()))


def test_state_dict_goes_round():
    layer, other = Rotate(12, 2, init="random", seed=0), Rotate(12, 2)
    x = normal(3, 12, dtype=torch.float32)
    with torch.no_grad():
        other(x)  # fills its cache
        assert list(layer.state_dict()) == ["angles"]
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), layer(x))
    with pytest.raises(RuntimeError, match="size mismatch"):
        Rotate(12, 1).load_state_dict(layer.state_dict())


def through_torch_save(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_torch_save]
)
def test_copies_are_independent(duplicate):
    layer, x = Rotate(12, init="random", seed=0), normal(3, 12, dtype=torch.float32)
    with torch.no_grad():
        before = layer(x)
        other = duplicate(layer)
        assert torch.equal(other(x), before)
        other.angles.add_(1)
        assert not torch.equal(other(x), before)
        assert torch.equal(layer(x), before)
    layer(x).sum().backward()
    assert other.angles.grad is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype):
    layer, x = Rotate(64, init="random", seed=0), normal(5, 64, dtype=dtype)
    y = layer(x)
    assert y.dtype == dtype
    y.float().sum().backward()
    assert layer.angles.grad.dtype == torch.float32
    exact = ops.rotate(x.double(), layer.wiring, layer.angles.detach().double())
    assert_close(y, exact, torch.finfo(dtype).eps)
    layer = layer.to(dtype)
    assert layer.angles.dtype == dtype
    assert layer(x).dtype == dtype
    norms = layer(x).float().norm(dim=-1)
    torch.testing.assert_close(norms, x.float().norm(dim=-1), rtol=torch.finfo(dtype).eps, atol=0)


def test_in_a_sequence_and_under_autocast():
    model = torch.nn.Sequential(
        torch.nn.Linear(10, 16), Rotate(16, init="random", seed=0), torch.nn.Linear(16, 2)
    )
    x = normal(7, 10, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
        inside = model[1](model[0](x))
    assert inside.dtype == torch.bfloat16
    assert y.dtype == torch.bfloat16
    assert_close(y, model(x), 0.02)
    y.float().sum().backward()
    assert all(
        p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all()
        for p in model.parameters()
    )
    assert "Rotate(n=16, n_rotations=32, init='random')" in repr(model)


def test_the_rotation_shares_the_angles():
    layer = Rotate(8, init="random", seed=0)
    Q = layer.rotation
    assert isinstance(Q, Rotation)
    x = normal(8, dtype=torch.float32)
    (Q @ x).sum().backward()
    assert layer.angles.grad is not None
    with torch.no_grad():
        layer.angles.add_(0.5)
        assert torch.equal(Q @ x, layer(x))


def test_reset_parameters():
    layer = Rotate(8, init="hadamard")
    with torch.no_grad():
        layer.angles.add_(1)
    layer.reset_parameters()
    assert torch.equal(layer.angles, torch.full((12,), math.pi / 4))


def test_bad_arguments():
    with pytest.raises(
        ValueError, match="init: expected one of 'identity', 'random', 'hadamard', got 'zeros'"
    ):
        Rotate(8, init="zeros")
    with pytest.raises(ValueError, match="expected a butterfly on 2\\^k coordinates, got Butterfly\\(n=12"):
        Rotate(12, init="hadamard")
    with pytest.raises(ValueError, match="depth: expected an integer ≥ 1, got 0"):
        Rotate(8, depth=0)
    with pytest.raises(ValueError, match="x: expected the last axis to be n = 8, got shape \\(3, 7\\)"):
        Rotate(8)(torch.zeros(3, 7))
