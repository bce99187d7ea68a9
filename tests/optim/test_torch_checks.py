"""PyTorch's own OptimizerInfo, and the checks its test suite runs with it, on the three optimisers."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import (
        OptimizerErrorEnum,
        OptimizerInfo,
        OptimizerInput,
        get_error_inputs_for_all_optims,
    )

from swallowtail.optim import GivensAdam, GivensLBFGS, GivensNewton


def inputs(*cases):
    return lambda device, dtype=None: [OptimizerInput(params=None, kwargs=k, desc=d) for d, k in cases]


COMMON = [("default", {}), ("non-default lr", {"lr": 0.01}), ("Tensor lr", {"lr": torch.tensor(0.01)})]
INFOS = [
    OptimizerInfo(
        GivensAdam,
        optim_inputs_func=inputs(
            *COMMON,
            ("weight_decay", {"weight_decay": 0.1}),
            ("maximize", {"weight_decay": 0.1, "maximize": True}),
            ("covariance", {"statistics": "covariance", "refresh": 3}),
            ("butterfly", {"wiring": "butterfly", "refresh": 3}),
            ("forloop", {"foreach": False}),
        ),
        optim_error_inputs_func=get_error_inputs_for_all_optims,
        supports_complex=False,
    ),
    OptimizerInfo(
        GivensLBFGS,
        optim_inputs_func=inputs(
            *COMMON,
            ("maximize", {"maximize": True, "max_iter": 2, "lr": 0.01}),
            ("no line search", {"line_search_fn": None, "lr": 0.01}),
            ("plain", {"preconditioner": "none"}),
        ),
        optim_error_inputs_func=get_error_inputs_for_all_optims,
        supports_complex=False,
        step_requires_closure=True,
    ),
    OptimizerInfo(
        GivensNewton,
        optim_inputs_func=inputs(
            *COMMON,
            ("maximize", {"maximize": True, "lr": 0.01}),
            ("paper", {"normalized_step": None, "rate": (0.01, 0.02)}),
            ("direct", {"inverse": "direct"}),
            ("psgd", {"criterion": "psgd", "replay": 8, "lr": 0.01}),
            ("logdet", {"criterion": "logdet", "replay": 8, "lr": 0.01, "momentum": 0.5}),
        ),
        optim_error_inputs_func=get_error_inputs_for_all_optims,
        supports_complex=False,
    ),
]
CASES = [
    pytest.param(info, case.kwargs, id=f"{info.optim_cls.__name__}-{case.desc}")
    for info in INFOS
    for case in info.optim_inputs_func("cpu")
]
EACH = [pytest.param(info, id=info.optim_cls.__name__) for info in INFOS]


def problem(seed: int = 0, dtype=torch.float32):
    """A small regression with a matrix, a vector, a scalar and a tensor of four axes."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype) * 0.3)
    W, b, scale, kernel = draw(4, 6), draw(4), draw(), draw(3, 2, 2, 2)
    x, y = (
        torch.randn(16, 6, generator=generator).to(dtype),
        torch.randn(16, 4, generator=generator).to(dtype),
    )

    def loss():
        out = torch.nn.functional.linear(x, W, b) * (1 + scale)
        return (out - y).square().mean() + kernel.square().mean()

    return [W, b, scale, kernel], loss


def closure_of(optimizer, loss):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def run(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.step(closure_of(optimizer, loss))


@pytest.mark.parametrize("info", EACH)
def test_error_inputs_of_all_optimizers(info):
    for error in info.optim_error_inputs_func("cpu", torch.float32):
        given = error.optimizer_error_input
        params = given.params if given.params is not None else [torch.nn.Parameter(torch.randn(2, 3))]
        assert error.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR
        if issubclass(error.error_type, Warning):
            with pytest.warns(error.error_type, match=error.error_regex):
                info.optim_cls(params, **given.kwargs)
        else:
            with pytest.raises(error.error_type, match=error.error_regex):
                info.optim_cls(params, **given.kwargs)


@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_goes_the_right_direction(info, kwargs):
    params, loss = problem()
    optimizer = info.optim_cls(params, **kwargs)
    before = loss().item()
    run(optimizer, loss, 10)
    after = loss().item()
    assert after > before if kwargs.get("maximize") else after < before


@pytest.mark.parametrize("info", EACH)
def test_goes_the_right_direction_with_schedulers(info):
    for make in info.scheduler_inputs[0]:
        params, loss = problem()
        optimizer = info.optim_cls(params)
        scheduler, before = make(optimizer), loss().item()
        for _ in range(12):
            value = optimizer.step(closure_of(optimizer, loss))
            by_metric = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(*([value] if by_metric else []))
        assert loss().item() < before
        assert by_metric or optimizer.param_groups[0]["lr"] < optimizer.defaults["lr"]


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
def test_parameters_without_gradients_stay(info):
    params, loss = problem()
    alone = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = info.optim_cls([*params, alone])
    run(optimizer, loss, 3)
    assert torch.equal(alone, torch.ones(3, 3))


@pytest.mark.parametrize("info", EACH)
def test_zero_gradients_change_nothing(info):
    p = torch.nn.Parameter(torch.randn(4, 5))
    start, optimizer = p.detach().clone(), info.optim_cls([p])
    for _ in range(3):
        p.grad = torch.zeros_like(p)
        optimizer.step(lambda: torch.zeros(()))
    assert torch.equal(p, start)


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_gradients_are_skipped_with_a_warning(info, bad):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    run(optimizer, loss, 3)
    saved, before = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]

    def closure():
        for p in params:
            p.grad = torch.full_like(p, bad)
        return torch.ones(())

    with pytest.warns(RuntimeWarning, match="skipped"):
        optimizer.step(closure)
    assert all(torch.equal(p, q) for p, q in zip(params, before, strict=True))
    after = optimizer.state_dict()
    for key, state in saved["state"].items():
        assert all(torch.equal(value, after["state"][key][name]) for name, value in state.items())


@pytest.mark.parametrize("info", EACH)
def test_sparse_and_complex_are_clear_errors(info):
    p = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = info.optim_cls([p])

    def closure():
        p.grad = torch.eye(4, 3).to_sparse()
        return torch.ones(())

    with pytest.raises(RuntimeError, match="dense gradients"):
        optimizer.step(closure)
    with pytest.raises(TypeError, match="real part"):
        info.optim_cls([torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))])
    with pytest.raises(TypeError, match="real part"):
        optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(info, dtype):
    params, loss = problem(dtype=dtype)
    optimizer = info.optim_cls(params)
    before = loss().item()
    run(optimizer, loss, 10)
    assert loss().item() < before
    assert all(p.dtype == dtype for p in params)
    wide = torch.promote_types(dtype, torch.float32)
    floats = [v for s in optimizer.state.values() for k, v in s.items() if v.is_floating_point() and v.ndim]
    assert floats
    assert all(v.dtype in (wide, torch.float64) for v in floats)


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
