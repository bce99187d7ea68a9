"""Parameters cut over processes (fully_shard, gloo): the same numbers as in one process; checkpoints; bad gradients."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
from bounded import gloo

from swallowtail.optim import GivensAdam

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
STEPS = 8
KINDS = {
    "default": {},
    "pairs": {"wiring": "pairs"},
    "butterfly": {"wiring": "butterfly", "sketch_columns": 3, "weight_decay": 0.1},
    "covariance": {"wiring": "butterfly", "statistics": "covariance"},
}


def model_of(seed=0):
    """Rows that do not divide by the number of processes, a convolution, vectors shorter than it."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv1d(2, 5, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(20, 7),
        torch.nn.Tanh(),
        torch.nn.Linear(7, 3),
    ).double()  # pairs are chosen by comparing numbers: in float32 the order of a sum may decide between two


def batch(step, part=slice(None)):
    generator = torch.Generator().manual_seed(100 + step)
    x, y = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((12, 2, 6), (12, 3)))
    return x[part], y[part]


def train(model, optimizer, steps, part=slice(None)):
    for step in steps:
        x, y = batch(step, part)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def in_one_process(options):
    model = model_of()
    train(model, GivensAdam(model.parameters(), lr=0.02, refresh=3, **options), range(STEPS))
    return [p.detach() for p in model.parameters()]


def sharded(options, lr=0.02):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))  # also where there is a GPU
    model = model_of()
    for layer in (model[2], model[4]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, GivensAdam(model.parameters(), lr=lr, refresh=3, **options)


def mine():
    """This process's part of every batch: mean gradients over equal parts are those of the whole."""
    size = 12 // dist.get_world_size()
    return slice(dist.get_rank() * size, (dist.get_rank() + 1) * size)


def whole(model):
    return [p.full_tensor().detach() for p in model.parameters()]


def agrees_with_one_process():
    for name, options in KINDS.items():
        model, optimizer = sharded(options)
        train(model, optimizer, range(STEPS), mine())
        for found, expected in zip(whole(model), in_one_process(options), strict=True):
            torch.testing.assert_close(
                found, expected, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def resumes_to_the_bit():
    model, optimizer = sharded({})
    train(model, optimizer, range(4), mine())
    saved = copy.deepcopy(optimizer.state_dict())
    weights = [p.to_local().detach().clone() for p in model.parameters()]
    train(model, optimizer, range(4, STEPS), mine())
    again, other = sharded({})
    for p, w in zip(again.parameters(), weights, strict=True):
        p.to_local().detach().copy_(w)
    other.load_state_dict(saved)
    train(again, other, range(4, STEPS), mine())
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(p.to_local(), q.to_local())


def leaves_everything_where_one_gradient_is_bad():
    model, optimizer = sharded({})
    train(model, optimizer, range(2), mine())
    before = [w.clone() for w in whole(model)]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    if dist.get_rank() == 1:
        next(model.parameters()).grad.to_local()[0] = torch.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skipped" in str(w.message) for w in caught)
    assert all(torch.equal(a, b) for a, b in zip(before, whole(model), strict=True))
    for key, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            old = state[key][name]
            local = [v.to_local() if hasattr(v, "to_local") else v for v in (value, old)]
            assert torch.equal(*local), name
    optimizer.zero_grad()
    optimizer.step()  # no process has a gradient: nothing to do, nothing hangs


SHORT = [agrees_with_one_process, resumes_to_the_bit, leaves_everything_where_one_gradient_is_bad]


def checkpoint(folder, save):
    """Trained with some processes and saved; loaded with another number of them, it goes on as one process would."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    for name, options in KINDS.items():
        model, optimizer = sharded(options)
        if save:
            train(model, optimizer, range(4), mine())
        weights, state = get_state_dict(model, optimizer)
        if save:
            dcp.save({"model": weights, "optimizer": state}, checkpoint_id=f"{folder}/{name}")
            continue
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=f"{folder}/{name}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
        train(model, optimizer, range(4, STEPS), mine())
        for found, expected in zip(whole(model), in_one_process(options), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def replicated_and_cut():
    """HSDP: two groups of processes with a copy each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = model_of()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts")))
    optimizer = GivensAdam(model.parameters(), lr=0.02, refresh=3)
    train(model, optimizer, range(STEPS), mine())
    for found, expected in zip(whole(model), in_one_process({}), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def saved(folder):
    checkpoint(folder, save=True)


def loaded(folder):
    checkpoint(folder, save=False)


def _worker(rank, trials, arguments):
    for trial in trials:
        trial(*arguments)


def spawn(world, trials, *arguments):
    gloo(_worker, world, trials, arguments)


def test_two_processes():
    spawn(2, SHORT)


@pytest.mark.extras
@pytest.mark.parametrize("world", [3, 4])
def test_more_processes(world):
    spawn(world, SHORT if world == 3 else [*SHORT, replicated_and_cut])


@pytest.mark.extras
def test_checkpoints_are_cut_anew(tmp_path):
    spawn(2, [saved], str(tmp_path))
    spawn(3, [loaded], str(tmp_path))
    spawn(1, [loaded], str(tmp_path))
