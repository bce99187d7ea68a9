"""The checks of PyTorch's test suite on how the optimisers go: direction, schedulers, dtypes."""

from __future__ import annotations

import pytest
import torch
from optim.torch_cases import CASES, EACH, closure_of, problem, run


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
    schedulers = torch.optim.lr_scheduler
    for make in (lambda o: schedulers.StepLR(o, gamma=0.9, step_size=10), schedulers.ReduceLROnPlateau):
        params, loss = problem()
        optimizer = info.optim_cls(params)
        scheduler, before = make(optimizer), loss().item()
        for _ in range(12):
            value = optimizer.step(closure_of(optimizer, loss))
            by_metric = isinstance(scheduler, schedulers.ReduceLROnPlateau)
            scheduler.step(*([value] if by_metric else []))
        assert loss().item() < before
        assert by_metric or optimizer.param_groups[0]["lr"] < optimizer.defaults["lr"]


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
