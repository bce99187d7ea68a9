"""Steps launched ahead against steps taken one by one.

On the GPU where there is one, else in Triton's interpreter (`interpreter.py`).
"""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace

import pytest
import torch
from interpreter import DEVICE, INTERPRETED, RUNS_HERE, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels import use_backend
from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import ahead as adam_ahead
from swallowtail.optim.adam import bases as adam_bases


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


# One matrix with kernels of its own, two that are stacked, vectors. The interpreter takes seconds for a step.
SHAPES = [(4, 3), (5,), (2, 2), (2, 2)] if INTERPRETED else [(24, 16), (9,), (5, 6), (5, 6), (3, 2, 2, 2)]


LARGE = 12 if INTERPRETED else 300  # entries of the first


def train(
    optimizer: GivensAdam,
    draws: torch.Generator,
    steps: int,
    kept: list[torch.Tensor] | None = None,
    bad: tuple = (),
) -> None:
    """Some steps on gradients that stay at their addresses, or are new ones, ``kept``; NaN in the steps ``bad``."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(steps):
        for p in params:
            value = torch.randn(p.shape, generator=draws, dtype=torch.float64).to(DEVICE, p.dtype)
            if p.grad is None or kept is not None:
                p.grad = torch.empty_like(p)
            if kept is not None:
                kept.append(p.grad)  # so that the next ones lie elsewhere
            p.grad.copy_(value)
        if step in bad:
            params[1].grad[3] = float("nan")
        optimizer.step()


@pytest.fixture
def twins(monkeypatch):
    """Makes the same optimiser on the same parameters twice: with steps launched ahead, and one by one.

    The interpreter computes on the CPU, where nothing is pinned, awaited or recorded.
    """
    monkeypatch.setattr(adam_bases, "FUSED_FROM", LARGE)
    if INTERPRETED:
        monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=bool, synchronize=bool))
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)

    def make(dtype: torch.dtype = torch.float32, **options: object) -> tuple[GivensAdam, GivensAdam]:
        draws = torch.Generator().manual_seed(1)
        values = [torch.randn(s, generator=draws).to(DEVICE, dtype) for s in SHAPES]
        if values[-1].ndim == 4:
            values[-1] = values[-1].to(memory_format=torch.channels_last)
        options = {"wiring": "butterfly", "refresh": 3, **options}
        ahead, plain = (
            GivensAdam([{"params": params[:3]}, {"params": params[3:], "lr": 2e-2}], 1e-2, **options)
            for params in ([torch.nn.Parameter(v.clone()) for v in values] for _ in range(2))
        )
        monkeypatch.setattr(plain, "_places", lambda params, gradients: None)
        if INTERPRETED:

            def known(params: list[torch.Tensor], gradients: list[torch.Tensor]) -> tuple | None:
                return tuple(map(id, params)) if all(p in ahead.state for p in params) else None

            monkeypatch.setattr(ahead, "_places", known)
            monkeypatch.setattr(ahead._ahead, "replay", lambda key, run: run())
        return ahead, plain

    if INTERPRETED:
        with use_backend("gpu"):
            yield make
    else:
        yield make


def recordings(optimizer: GivensAdam) -> int:
    return len(optimizer._ahead.replay._recorded)


def same(one: GivensAdam, other: GivensAdam) -> bool:
    groups = zip(one.param_groups, other.param_groups, strict=True)
    return all(
        torch.equal(p, q)
        and all(torch.equal(one.state[p][name], other.state[q][name]) for name in one.state[p])
        for a, b in groups
        for p, q in zip(a["params"], b["params"], strict=True)
    )


on_a_gpu = pytest.mark.skipif(
    INTERPRETED or not RUNS_HERE,
    reason="needs a GPU: takes minutes in the interpreter, which records nothing",
)


@on_a_gpu
@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.1},
        {"maximize": True, "statistics": "covariance"},
        {"wiring": "grouped", "weight_decay": 0.1},
        {"wiring": "grouped", "dtype": torch.bfloat16},
        {"dtype": torch.bfloat16, "foreach": False},
        {"dtype": torch.float64, "depth": 1},
    ],
    ids=lambda options: " ".join(options),
)
def test_steps_launched_ahead_are_the_steps(options, twins):
    ahead, plain = twins(**options)
    for optimizer in (ahead, plain):
        draws = torch.Generator().manual_seed(2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        for _ in range(4):
            train(optimizer, draws, 3)
            schedule.step()
    assert same(ahead, plain)
    assert recordings(plain) == 0
    # A step and a step with a fit; with groups also one with a fit if the last one does not count.
    assert recordings(ahead) == (3 if options.get("wiring") == "grouped" else 2)


@needs_kernels
@pytest.mark.parametrize(
    "bad", [(4, 5)] if INTERPRETED else [(6,), (7,), (8,), (9,), (7, 8), (7, 9), (8, 9)], ids=str
)
@pytest.mark.parametrize("wiring", ["butterfly", "grouped"])
@pytest.mark.filterwarnings("ignore:some gradient")
def test_steps_after_bad_gradients(wiring, bad, twins):
    """Fits come with every third step that counts: some of these are next to one, some would have been one."""
    ahead, plain = twins(wiring=wiring)
    for optimizer in (ahead, plain):
        train(optimizer, torch.Generator().manual_seed(5), 8 if INTERPRETED else 14, bad=bad)
        optimizer.state_dict()
    assert same(ahead, plain)


@needs_kernels
def test_a_bad_gradient_leaves_everything_as_it_was(twins):
    optimizer, _ = twins()
    draws = torch.Generator().manual_seed(3)
    train(optimizer, draws, 4)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    params = [p for group in optimizer.param_groups for p in group["params"]]
    values = [p.detach().clone() for p in params]
    train(optimizer, draws, 1, bad=(0,))
    with pytest.warns(RuntimeWarning, match="skipped"):
        after = optimizer.state_dict()["state"]
    assert all(map(torch.equal, values, params))
    for index, state in after.items():
        assert all(torch.equal(value, before[index][name]) for name, value in state.items())


@needs_kernels
def test_a_parameter_that_would_overflow_stays(twins):
    optimizer, _ = twins()
    train(optimizer, torch.Generator().manual_seed(6), 4)
    (p, *_) = optimizer.param_groups[0]["params"]
    before = p.detach().clone()
    optimizer.param_groups[0]["lr"] = 1e38
    optimizer.step()
    with pytest.warns(RuntimeWarning, match="some parameter"):
        optimizer.state_dict()
    assert torch.equal(p, before)


@needs_kernels
def test_counters_are_right_when_warnings_are_errors(twins):
    optimizer, _ = twins()
    draws = torch.Generator().manual_seed(7)
    train(optimizer, draws, 4)
    train(optimizer, draws, 1, bad=(0,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            optimizer.state_dict()
    assert all(state["step"] == 4 for state in optimizer.state_dict()["state"].values())


@on_a_gpu
def test_what_steps_read_may_change(twins):
    """Loaded state, and tensors that are stacked otherwise for a while, are not read where the old ones were."""
    ahead, plain = twins()
    for optimizer in (ahead, plain):
        draws = torch.Generator().manual_seed(4)
        train(optimizer, draws, 8)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(optimizer, draws, 5)
        lone = optimizer.param_groups[0]["params"][2]
        gradient, lone.grad = lone.grad, None
        for _ in range(4):
            optimizer.step()  # its twin goes alone
        lone.grad = gradient
        train(optimizer, draws, 8)
    assert same(ahead, plain)


@on_a_gpu
def test_gradients_at_new_addresses_are_not_recorded(twins):
    ahead, plain = twins()
    for optimizer in (ahead, plain):
        train(optimizer, torch.Generator().manual_seed(8), 12, kept=[])
    assert same(ahead, plain)
    assert recordings(ahead) == 0


@needs_kernels
def test_large_models_are_not_recorded(twins, monkeypatch):
    optimizer, _ = twins()
    monkeypatch.setattr(adam_ahead, "RECORDED_UP_TO", 1)
    monkeypatch.setattr(optimizer._ahead, "replay", None)
    train(optimizer, torch.Generator().manual_seed(9), 3)
    assert all(state["step"] == 3 for state in optimizer.state_dict()["state"].values())
