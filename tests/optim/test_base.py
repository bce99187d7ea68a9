"""The checks of PyTorch's test suite on what the optimisers share: construction, groups, state, hooks, errors."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from optim.torch_cases import CASES, EACH, problem, run

from swallowtail.errors import ArgumentError
from swallowtail.optim import GivensAdam
from swallowtail.optim.base import check_number, loss_of

A, B = torch.nn.Parameter(torch.ones(1, 1)), torch.nn.Parameter(torch.ones(1, 1))


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize(
    ("params", "kwargs", "error", "message"),
    [
        (A, {}, TypeError, "should be an iterable of Tensors or dicts"),
        ([{"params": A}, {"params": A}], {}, ValueError, "more than one parameter group"),
        ([A], {"lr": torch.tensor([0.001, 0.001])}, ArgumentError, "Tensor lr must be 1-element"),
        ([("weight", A), B], {}, ValueError, "with/without names"),
        ([{"params": [A]}, {"params": [("weight", B)]}], {}, ValueError, "with/without names"),
    ],
)
def test_bad_parameters_and_rates(info, params, kwargs, error, message):
    with pytest.raises(error, match=message):
        info.optim_cls(params, **kwargs)


@pytest.mark.parametrize("info", EACH)
def test_error_inputs_of_pytorchs_own_suite(info):
    pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import (
            OptimizerErrorEnum,
            get_error_inputs_for_all_optims,
        )
    for error in get_error_inputs_for_all_optims("cpu", torch.float32):
        given = error.optimizer_error_input
        params = given.params if given.params is not None else [torch.nn.Parameter(torch.randn(2, 3))]
        assert error.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR
        warns = issubclass(error.error_type, Warning)
        with (pytest.warns if warns else pytest.raises)(error.error_type, match=error.error_regex):
            info.optim_cls(params, **given.kwargs)


@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_resumes_to_the_same_bits(info, kwargs, tmp_path):
    params, loss = problem()
    optimizer = info.optim_cls(params, **kwargs)
    run(optimizer, loss, 7)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    weights = [p.detach().clone() for p in params]
    run(optimizer, loss, 7)

    again, loss2 = problem()
    resumed = info.optim_cls(again, **kwargs)
    with torch.no_grad():
        for p, w in zip(again, weights, strict=True):
            p.copy_(w)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    run(resumed, loss2, 7)
    for p, q in zip(params, again, strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_state_is_tensors_only(info, kwargs):
    params, loss = problem()
    optimizer = info.optim_cls(params, **kwargs)
    run(optimizer, loss, 3)
    for state in optimizer.state_dict()["state"].values():
        assert all(isinstance(value, torch.Tensor) for value in state.values())


@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_deepcopy_goes_on_alike(info, kwargs):
    params, loss = problem()
    optimizer = info.optim_cls(params, **kwargs)
    run(optimizer, loss, 4)
    twin = copy.deepcopy(optimizer)
    assert [g.keys() for g in twin.param_groups] == [g.keys() for g in optimizer.param_groups]
    own = [p for g in twin.param_groups for p in g["params"]]
    assert all(p is not q and torch.equal(p, q) for p, q in zip(params, own, strict=True))
    gradients = [torch.randn_like(p) for p in params]
    for optim, ps in ((optimizer, params), (twin, own)):
        for p, g in zip(ps, gradients, strict=True):
            p.grad = g.clone()
        optim.step(lambda: torch.ones(()))
    assert all(torch.equal(p, q) for p, q in zip(params, own, strict=True))


@pytest.mark.parametrize("info", EACH)
def test_param_groups_and_added_groups(info):
    params, loss = problem()
    optimizer = info.optim_cls([{"params": params[:2]}, {"params": params[2:3]}])
    run(optimizer, loss, 3)
    optimizer.add_param_group({"params": params[3:]})
    before = [p.detach().clone() for p in params]
    run(optimizer, loss, 3)
    assert all(not torch.equal(p, q) for p, q in zip(params, before, strict=True))


@pytest.mark.parametrize("info", EACH)
def test_hooks_run(info):
    params, loss = problem()
    optimizer, calls = info.optim_cls(params), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.register_state_dict_post_hook(lambda o, d: calls.append("save"))
    optimizer.register_load_state_dict_pre_hook(lambda o, d: calls.append("load"))
    run(optimizer, loss, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["pre", "post", "save", "load"]


@pytest.mark.parametrize("info", EACH)
def test_load_hook_that_changes_the_state_is_heeded(info):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    run(optimizer, loss, 2)
    saved = optimizer.state_dict()
    optimizer.register_load_state_dict_pre_hook(lambda o, d: {**d, "state": {}})
    optimizer.load_state_dict(saved)
    assert not any(optimizer.state.values())


@pytest.mark.parametrize("info", EACH)
def test_a_changed_shape_is_a_clear_error(info):
    p = torch.nn.Parameter(torch.randn(4, 3))
    optimizer = info.optim_cls([p])
    loss = lambda: p.square().sum()
    run(optimizer, loss, 2)
    p.data = torch.randn(5, 3)
    with pytest.raises(ValueError, match="shapes change"):
        run(optimizer, loss, 1)


@pytest.mark.parametrize("info", EACH)
def test_closures_that_return_nothing_or_nan(info):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    with pytest.raises(TypeError, match="return loss"):
        optimizer.step(lambda: None)
    if info.step_requires_closure:
        with pytest.raises(TypeError, match="closure"):
            optimizer.step()
        loss().backward()
        with pytest.warns(RuntimeWarning, match="skipped"):
            optimizer.step(lambda: torch.tensor(float("nan")))
    else:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("missing", ["everything", "maximize"])
def test_states_of_other_optimisers_are_refused_and_change_nothing(info, missing):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    run(optimizer, loss, 3)
    saved, groups = copy.deepcopy(optimizer.state_dict()), [dict(g) for g in optimizer.param_groups]
    other = torch.optim.Adam(params, lr=0.5).state_dict()
    if missing == "maximize":
        other = copy.deepcopy(saved)
        del other["param_groups"][0]["maximize"]
    message = (
        rf"^state_dict: expected what state_dict of a {info.optim_cls.__name__} returns, got a group without"
    )
    with pytest.raises(ArgumentError, match=message):
        optimizer.load_state_dict(other)
    assert optimizer.param_groups == groups
    now = optimizer.state_dict()
    for key, state in saved["state"].items():
        assert all(torch.equal(now["state"][key][name], value) for name, value in state.items())
    run(optimizer, loss, 1)


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize(("name", "value"), [("maximize", "no"), ("lr", -1.0), ("weight_decay", "a")])
def test_a_bad_state_of_its_own_kind_changes_nothing(info, name, value):
    params, _ = problem()
    optimizer = info.optim_cls(params)
    if name not in optimizer.defaults:
        pytest.skip("it has no such hyper-parameter")
    saved = optimizer.state_dict()
    saved["param_groups"][0][name] = value
    with pytest.raises(ArgumentError, match=f"^{name}: expected"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0][name] == optimizer.defaults[name]


@pytest.mark.parametrize("info", EACH)
def test_what_is_set_later_is_checked_in_the_next_step(info):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    run(optimizer, loss, 2)
    weights = [p.detach().clone() for p in params]
    name = next(name for name in ("refresh", "reuse", "max_iter") if name in optimizer.defaults)
    optimizer.param_groups[0][name] = 0
    with pytest.raises(ArgumentError, match=f"^{name}: expected an integer ≥ 1, got 0"):
        run(optimizer, loss, 1)
    assert all(torch.equal(p, w) for p, w in zip(params, weights, strict=True))
    optimizer.param_groups[0][name] = optimizer.defaults[name]
    run(optimizer, loss, 1)


def test_a_bad_group_is_not_added():
    optimizer = GivensAdam([torch.nn.Parameter(torch.ones(2))])
    with pytest.raises(ValueError, match="lr"):
        optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(3)), "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_bounds_of_numbers_are_readable():
    with pytest.raises(ValueError, match=r"betas\[0\]: expected a finite number ≥ 0 and < 1, got 1"):
        GivensAdam([torch.nn.Parameter(torch.ones(1))], betas=(1.0, 0.9))


@pytest.mark.parametrize("bad", ["large", "0.5", None, [0.1, 0.2], torch.ones(2), float("nan"), 1.0])
def test_bad_numbers_are_argument_errors(bad):
    check_number("share", 0.5, at_least=0, below=1)
    check_number("share", torch.tensor(0.5), at_least=0, below=1)
    with pytest.raises(ArgumentError) as error:
        check_number("share", bad, at_least=0, below=1)
    assert error.value.name == "share"


def test_losses_may_be_plain_numbers():
    assert loss_of(lambda: 3)().item() == 3.0
    with pytest.raises(ArgumentError, match="since reasons"):
        loss_of(None, "reasons")
