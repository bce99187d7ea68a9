"""Kept coefficients follow every change of the numbers they were made from, and are used while nothing changes."""

import weakref

import pytest
import torch
from cases import normal, random_angles

from swallowtail import Butterfly, kernels, ops
from swallowtail.ops import PreparedCache


def edit_in_place(t):
    with torch.no_grad():
        t.add_(0.3)


def edit_data(t):
    t.data.add_(0.3)


def replace_data(t):
    t.data = t.data + 0.3


def edit_as_array(t):
    t.detach().numpy()[:] += 0.3


def fused_step(t):
    t.grad = torch.ones_like(t)
    torch.optim.Adam([t], lr=0.3, fused=True).step()


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
def test_cached_coefficients_notice_edits_of_angles_that_became_trainable(edit):
    wiring, cache = Butterfly(16), PreparedCache()
    angles, x = random_angles(wiring, dtype=torch.float32), torch.ones(3, 16)
    before = ops.rotate(x, wiring, angles, cache=cache)
    angles.requires_grad_()
    with torch.no_grad():
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), before)
        edit(angles)
        after = ops.rotate(x, wiring, angles, cache=cache)
        assert torch.equal(after, ops.rotate(x, wiring, angles))
    assert not torch.allclose(after, before)


def test_a_cache_keeps_no_graph_alive():
    wiring, cache, leaf = Butterfly(16), PreparedCache(), torch.ones(32, requires_grad=True)
    angles = leaf * 0.5
    with torch.no_grad():
        ops.rotate(torch.ones(3, 16), wiring, angles, cache=cache)
    tensor = weakref.ref(angles)  # which holds the graph
    del angles
    assert tensor() is None


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, edit_as_array])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cached_coefficients_follow_frozen_parameters(edit, x_dtype):
    wiring, cache = Butterfly(16), PreparedCache()
    angles = torch.nn.Parameter(random_angles(wiring, dtype=torch.float32), requires_grad=False)
    d = torch.nn.Parameter(normal(16, dtype=torch.float32), requires_grad=False)
    x = normal(3, 16, dtype=x_dtype)
    for step in range(4):
        edit(angles if step % 2 else d)
        fresh = [t.detach().clone() for t in (angles, d)]
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, fresh[0]))
        actual = ops.symmetric_matvec(x, wiring, angles, d, cache=cache)
        assert torch.equal(actual, ops.symmetric_matvec(x, wiring, *fresh))
        z = x.clone().requires_grad_()  # with a gradient for x alone
        assert torch.equal(ops.rotate(z, wiring, angles, cache=cache), ops.rotate(z, wiring, fresh[0]))


def test_cached_coefficients_follow_strides():
    wiring, cache, x = Butterfly(16), PreparedCache(), normal(16, dtype=torch.float32)
    room = random_angles(wiring, 2, dtype=torch.float32)
    wide = torch.cat([room, room.flip(1)], 1).view(-1)
    layer = torch.nn.Parameter(wide[:32], requires_grad=False)
    for size, stride in ((32, 1), (32, 2), (32, 3), (32, 1)):
        layer.data = wide.as_strided((size,), (stride,))
        assert torch.equal(ops.rotate(x, wiring, layer, cache=cache), ops.rotate(x, wiring, layer.clone()))


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cached_coefficients_follow_trainable_parameters(edit, x_dtype):
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    d = normal(16, dtype=torch.float32).requires_grad_()
    x = normal(3, 16, dtype=x_dtype)
    for step in range(6):
        edit(angles if step % 2 else d)
        fresh = [t.detach().clone() for t in (angles, d)]
        with torch.no_grad():
            assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, fresh[0]))
            actual = ops.symmetric_matvec(x, wiring, angles, d, cache=cache)
            assert torch.equal(actual, ops.symmetric_matvec(x, wiring, *fresh))
            actual = ops.quadratic_form(x, wiring, angles, d, cache=cache)
            assert torch.equal(actual, ops.quadratic_form(x, wiring, *fresh))


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
@pytest.mark.parametrize("transpose", [False, True])
def test_coefficients_kept_for_training_follow_the_angles(edit, transpose):
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    x, g = normal(2, 3, 16, dtype=torch.float32)
    x.requires_grad_()
    rotate = ops.rotate_transpose if transpose else ops.rotate
    for _ in range(3):
        for _ in range(2):  # made anew, then kept
            actual = torch.autograd.grad(rotate(x, wiring, angles, cache=cache), (x, angles), g)
            fresh = angles.detach().clone().requires_grad_()
            expected = torch.autograd.grad(rotate(x, wiring, fresh), (x, fresh), g)
            assert all(map(torch.equal, actual, expected))
        edit(angles)


@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_cached_coefficients_follow_plain_tensors(x_dtype, batch):
    """Also where every call converts or copies them: a new copy may lie where the last one was."""
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, *batch, dtype=torch.float32)
    x = normal(3, 16, dtype=x_dtype)
    for _ in range(20):
        angles.add_(0.1)
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, angles.clone()))


def test_a_cache_knows_a_new_tensor_at_an_old_address():
    wiring, cache, x = Butterfly(512), PreparedCache(), normal(512, dtype=torch.float32)
    for seed in range(10):
        angles = random_angles(wiring, dtype=torch.float32, seed=seed)
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, angles))
        del angles


def test_inference_mode():
    wiring, cache = Butterfly(16), PreparedCache()
    with torch.inference_mode():
        angles, x = random_angles(wiring), normal(16)
        for _ in range(3):
            angles.add_(0.1)  # nothing counts this
            y = ops.rotate(x, wiring, angles, cache=cache)
            assert torch.equal(y, ops.rotate(x, wiring, angles.clone()))


def test_kept_coefficients_are_used(monkeypatch):
    """The other side: nothing is prepared twice while nothing changes."""
    cpu, counted = kernels.load("cpu"), []
    prepare = cpu.prepare
    monkeypatch.setattr(cpu, "prepare", lambda *a, **k: counted.append(1) or prepare(*a, **k))
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    with torch.no_grad():
        for dtype, times in ((torch.float32, 1), (torch.float64, 2)):
            for _ in range(3):
                ops.rotate(normal(16, dtype=dtype), wiring, angles, cache=cache)
            assert len(counted) == times


def test_what_is_owned_is_not_compared(monkeypatch):
    """An operator's angles cannot change: a look at them would cost a fifth of the call."""
    from swallowtail.ops import cache as module

    monkeypatch.setattr(module, "_memcmp", lambda *_: pytest.fail("compared"))
    wiring, cache = Butterfly(16), PreparedCache(owned=True)
    angles, x = random_angles(wiring, dtype=torch.float32), normal(16, dtype=torch.float32)
    for view in (angles, angles[None][0], angles):  # a view of the same memory, too
        assert torch.equal(ops.rotate(x, wiring, view, cache=cache), ops.rotate(x, wiring, angles))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["prepare", "prepare_training"])
def test_a_change_while_coefficients_are_made_is_noticed(name, dtype, monkeypatch):
    """By another thread, say. The coefficients must not be taken for those of the numbers after it."""
    cpu, wiring, cache = kernels.load("cpu"), Butterfly(16), PreparedCache()
    angles, x = random_angles(wiring, dtype=torch.float32), normal(2, 16, dtype=dtype)
    angles.requires_grad_(name == "prepare_training")
    make = getattr(cpu, name)

    def meanwhile(*arguments, **options):
        made = make(*arguments, **options)
        edit_data(angles)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(cpu, name, meanwhile)
        ops.rotate(x, wiring, angles, cache=cache)
    assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, angles.clone()))
