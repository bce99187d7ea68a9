"""Which parameters are small, and that their steps are the steps of all others."""

from __future__ import annotations

import copy

import pytest
import torch
from optim.adam.training import trained

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import small as adam_small

# One side longer than the columns that moments take in, sides of several groups, vectors, a scalar, a kernel.
SHAPES = [(6, 5), (5,), (), (70, 9), (9, 70), (4, 3, 2, 2), (6, 5), (130, 4), (36, 260)]


def plainly(monkeypatch):
    monkeypatch.setattr(adam_small, "switched_off", lambda: "a test says so")


def distance(ours, theirs):
    """The largest relative difference of parameters and state, by norms."""
    pairs = list(zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"], strict=True))
    both = [(ours.state[p][name], value) for p, q in pairs for name, value in theirs.state[q].items()]
    both += [(p.detach(), q.detach()) for p, q in pairs]
    return max(float((a - b).norm() / b.norm()) for a, b in both)


ROUNDING = 1e-9  # bases where there are few gradients are determined no better


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1, "betas": (0.5, 0.9), "refresh": 3},
        {"maximize": True, "statistics_decay": 0.5, "refresh": 1},
        {"max_side": 8},
    ],
    ids=str,
)
def test_small_steps_are_the_steps(options, monkeypatch):
    _, ours = trained(lambda p: GivensAdam(p, 1e-2, **options), SHAPES, steps=17)
    expected = 9 if "max_side" not in options else 4
    assert len(ours._small._members) == expected
    plainly(monkeypatch)
    _, theirs = trained(lambda p: GivensAdam(p, 1e-2, **options), SHAPES, steps=17)
    assert not theirs._small._members
    assert distance(ours, theirs) < ROUNDING


def test_float32_agrees_to_its_rounding(monkeypatch):
    shapes = [shape for shape in SHAPES if max(shape, default=0) < 70]
    _, ours = trained(lambda p: GivensAdam(p, 1e-2), shapes, dtype=torch.float32)
    plainly(monkeypatch)
    _, theirs = trained(lambda p: GivensAdam(p, 1e-2), shapes, dtype=torch.float32)
    assert distance(ours, theirs) < 1e-4


def test_with_few_threads_no_matrix_is_too_large(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: adam_small.FEW_THREADS)
    _, ours = trained(lambda p: GivensAdam(p, 1e-2), [(420, 320)], steps=7)
    assert len(ours._small._members) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: adam_small.FEW_THREADS + 1)
    _, theirs = trained(lambda p: GivensAdam(p, 1e-2), [(420, 320)], steps=7)
    assert not theirs._small._members
    assert distance(ours, theirs) < ROUNDING


def test_large_ones_take_their_steps_beside_them(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: adam_small.FEW_THREADS + 1)
    monkeypatch.setattr(adam_small, "LARGEST", 500)
    monkeypatch.setattr(adam_small, "LEAST", 100)
    shapes = [(6, 5), (130, 4), (70, 70), (5,), (2, 131)]
    ours, optimizer = trained(lambda p: GivensAdam(p, 1e-2), shapes, steps=12)
    assert [tuple(each.p.shape) for each in optimizer._small._members] == [(6, 5), (5,)]
    alone, _ = trained(lambda p: GivensAdam(p, 1e-2, foreach=False), shapes, steps=12)
    assert all(torch.allclose(p, q, rtol=1e-10) for p, q in zip(ours, alone, strict=True))


def steps(optimizer, gradients, transposed=False):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for each in gradients:
        for p, g in zip(params, each, strict=True):
            p.grad = g.T.contiguous().T if transposed and g.ndim == 2 else g.clone()
        optimizer.step()


def draws(count, shapes=((6, 5), (5,))):
    generator = torch.Generator().manual_seed(4)
    return [[torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes] for _ in range(count)]


def two():
    params = [
        [torch.nn.Parameter(torch.ones(s, dtype=torch.float64)) for s in ((6, 5), (5,))] for _ in range(2)
    ]
    return [GivensAdam(each, 1e-2) for each in params]


def test_gradients_with_strides_take_the_other_way_and_back():
    ours, theirs = two()
    for k, each in enumerate(draws(24)):
        steps(ours, [each], transposed=k // 6 == 1)  # over a fit each time
        assert len(ours._small._members) == (0 if k == 0 else 1 if k // 6 == 1 else 2)
        steps(theirs, [each])
    assert distance(ours, theirs) < ROUNDING


def test_state_that_was_replaced_or_moved_is_found():
    ours, theirs = two()
    first, second = draws(12)[:6], draws(12)[6:]
    steps(ours, first)
    steps(theirs, first)
    for p in ours.param_groups[0]["params"]:
        ours.state[p]["exp_avg"] = ours.state[p]["exp_avg"].clone()
        ours.state[p]["exp_avg_sq"].data = ours.state[p]["exp_avg_sq"].clone()
        p.data = p.detach().clone()
    steps(ours, second)
    steps(theirs, second)
    assert distance(ours, theirs) == 0


def test_state_that_was_dropped_begins_anew():
    ours, theirs = two()
    steps(ours, draws(6))
    for p, q in zip(*(each.param_groups[0]["params"] for each in (ours, theirs)), strict=True):
        ours.state[p].clear()
        q.data.copy_(p.data)
    steps(ours, draws(6))
    steps(theirs, draws(6))
    assert distance(ours, theirs) == 0


def test_a_resumed_run_repeats_itself_to_the_bit():
    ours, theirs = two()
    gradients = draws(21)
    steps(ours, gradients[:13])
    for p, q in zip(*(each.param_groups[0]["params"] for each in (theirs, ours)), strict=True):
        p.data.copy_(q.data)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    steps(ours, gradients[13:])
    steps(theirs, gradients[13:])
    assert distance(ours, theirs) == 0


def test_parameters_that_join_later_have_steps_of_their_own():
    ours, theirs = two()
    theirs.param_groups[0]["foreach"] = False
    for k, each in enumerate(draws(14)):
        for optimizer in (ours, theirs):
            for p, g in zip(optimizer.param_groups[0]["params"], each, strict=True):
                p.grad = None if p.ndim == 1 and k < 4 else g.clone()
            optimizer.step()
    assert distance(ours, theirs) < ROUNDING


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200])
def test_bad_gradients_change_nothing(bad):
    ours, _ = two()
    steps(ours, draws(9))
    before, kept = (
        copy.deepcopy(ours.state_dict()["state"]),
        ours.param_groups[0]["params"][0].detach().clone(),
    )
    gradients = draws(1)
    gradients[0][1][2] = bad
    with pytest.warns(RuntimeWarning, match="some gradient"):
        steps(ours, gradients)
    assert torch.equal(ours.param_groups[0]["params"][0], kept)
    after = ours.state_dict()["state"]
    assert all(torch.equal(v, after[k][name]) for k in before for name, v in before[k].items())


def test_parameters_that_would_not_stay_finite_are_not_written():
    ours, _ = two()
    steps(ours, draws(3))
    ours.param_groups[0]["lr"] = 1e308
    kept = ours.param_groups[0]["params"][0].detach().clone()
    with pytest.warns(RuntimeWarning, match="some parameter"):
        steps(ours, draws(1))
    assert torch.equal(ours.param_groups[0]["params"][0], kept)


def test_autograd_hears_of_the_change():
    ours, _ = two()
    steps(ours, draws(2))
    p = ours.param_groups[0]["params"][0]
    loss = p.square().sum()
    steps(ours, draws(1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_bases_are_found_at_any_size_of_gradients(size):
    ours, _ = two()
    for p in ours.param_groups[0]["params"]:
        p.data = p.detach().float()
    steps(ours, [[size * g.float() for g in each] for each in draws(6)])
    groups = ours.state[ours.param_groups[0]["params"][0]]["left_groups"][0]
    assert torch.allclose(groups.mT @ groups, torch.eye(6), atol=1e-5)
    assert (groups.abs() < 0.99).all()
