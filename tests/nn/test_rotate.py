"""Rotate: trained, saved, copied, in half precision; a rotation whatever happens to it."""

import copy
import io
import math
import pickle
import re

import pytest
import torch
from cases import WIRINGS, assert_close, normal, relative_error
from safetensors.torch import load_file, save_file

from swallowtail import Butterfly, Pairs, Rotation, ops
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
    layer = Rotate(16, depth=depth, init="hadamard")
    Q = Rotation.hadamard(16).to_dense()
    torch.testing.assert_close(layer(torch.eye(16)).T.detach(), Q)
    assert layer.angles.shape == (32 * depth,)


def test_any_wiring():
    wiring = WIRINGS["pairs-17"]
    layer = Rotate(wiring=wiring, init="random", seed=0)
    x = normal(3, 17, dtype=torch.float32)
    assert torch.equal(layer(x), ops.rotate(x, wiring, layer.angles))


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
    layer, other = Rotate(12, depth=2, init="random", seed=0), Rotate(12, depth=2)
    x = normal(3, 12, dtype=torch.float32)
    with torch.no_grad():
        other(x)  # fills its cache
        assert list(layer.state_dict()) == ["angles", "_extra_state"]
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), layer(x))


OTHERS = {
    "reversed": Butterfly(12, 2, reverse=True),
    "the same pairs, said otherwise": Pairs(12, Butterfly(12, 2).layers()),
    "another depth": Butterfly(12),
    "another n": Butterfly(11, 2),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("strict", [True, False])
def test_a_state_dict_of_another_wiring_is_refused(name, strict):
    layer = Rotate(12, depth=2)
    state = Rotate(wiring=OTHERS[name], init="random", seed=0).state_dict()
    with pytest.raises(RuntimeError, match=r"expected those of Butterfly\(n=12, depth=2\).*another wiring"):
        layer.load_state_dict(state, strict=strict)
    assert torch.equal(layer.angles, torch.zeros_like(layer.angles))


def test_a_state_dict_is_tensors_only(tmp_path):
    model = torch.nn.Sequential(Rotate(8, init="random", seed=0), torch.nn.Linear(8, 2))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = torch.nn.Sequential(Rotate(8), torch.nn.Linear(8, 2))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other[0].angles, model[0].angles)
    with pytest.raises(RuntimeError, match="Missing key"):
        Rotate(8).load_state_dict({"angles": torch.zeros(12)})


def there_and_back():
    layer = Rotate(12, init="random", seed=0)
    return torch.nn.Sequential(layer, torch.nn.Tanh(), layer.T)


def test_T_is_a_view():
    model, x = there_and_back(), normal(3, 12, dtype=torch.float32)
    layer, view = model[0], model[2]
    assert torch.equal(view(x), ops.rotate_transpose(x, layer.wiring, layer.angles))
    assert view.T is layer
    torch.testing.assert_close(view.rotation @ x.T, view(x).T)
    assert list(model.state_dict()) == ["0.angles", "0._extra_state"]
    assert [id(p) for p in model.parameters()] == [id(layer.angles)]
    model(x).square().sum().backward()
    assert layer.angles.grad.abs().sum() > 0
    with torch.no_grad():
        layer.angles.add_(0.5)
        torch.testing.assert_close(view(layer(x)), x)
    assert view.to(torch.float64).T.angles.dtype == torch.float32  # the layer is moved, not its view
    assert model.double()[2](x.double()).dtype == torch.float64
    assert "Transposed(n=12, n_rotations=20" in repr(model)


def test_T_under_compile():
    torch.compiler.reset()
    model, x = there_and_back(), normal(3, 12, dtype=torch.float32)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        gradients = [torch.autograd.grad(f(x).pow(3).sum(), model[0].angles)[0] for f in (model, compiled)]
        torch.testing.assert_close(*gradients)
        with torch.no_grad():
            model[0].angles.add_(0.5)
    torch.compiler.reset()


def test_T_of_a_layer_that_is_gone():
    view = Rotate(8).T
    with pytest.raises(RuntimeError, match=r"expected its Rotate to be kept.*try layer = Rotate"):
        view(torch.zeros(8))


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
    model = duplicate(there_and_back())
    assert model[2].T is model[0]


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


MISTAKES = [
    (lambda: Rotate(8, init="zeros"), "init: expected one of 'identity', 'random', 'hadamard', got 'zeros'"),
    (
        lambda: Rotate(12, init="hadamard"),
        "wiring: expected a butterfly on 2^k coordinates for init='hadamard'",
    ),
    (lambda: Rotate(wiring=WIRINGS["pairs-17"], init="hadamard"), "wiring: expected a butterfly on 2^k"),
    (lambda: Rotate(8, depth=0), "depth: expected an integer ≥ 1, got 0"),
    (lambda: Rotate(20, 32), "positional arguments"),
    (lambda: Rotate(), "n: expected n, or a wiring, got neither"),
    (lambda: Rotate(Butterfly(8)), "n: expected an integer ≥ 1, got Butterfly(n=8"),
    (lambda: Rotate(8, wiring=Butterfly(8)), "n: expected no n where a wiring is given, got 8"),
    (
        lambda: Rotate(wiring=Butterfly(8), depth=2),
        "depth: expected no depth where a wiring is given, got 2",
    ),
    (lambda: Rotate(8, scales="no"), "scales: expected True or False, got 'no'"),
    (lambda: Rotate(8, seed="a"), "seed: expected an integer ≥ 0, got 'a'"),
    (lambda: Rotate(8, dtype=torch.int32), "dtype: expected float64, float32, bfloat16 or float16"),
    (lambda: Rotate(8, dtype=torch.complex64), "dtype: expected float64, float32, bfloat16"),
    (lambda: Rotate(8, device="foo"), "device: expected a torch device, got 'foo'"),
    (lambda: Rotate(wiring="pairs"), "wiring: expected a Butterfly, Pairs or Grouped, got 'pairs'"),
    (lambda: Rotate(8)(torch.zeros(3, 7)), "x: expected the last axis to be n = 8, got shape (3, 7)"),
    (lambda: keep.T(torch.zeros(3, 7)), "x: expected the last axis to be n = 8, got shape (3, 7)"),
]
keep = Rotate(8)


@pytest.mark.parametrize(("call", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_mistakes(call, text):
    with pytest.raises(TypeError, match=re.escape(text)):
        call()
