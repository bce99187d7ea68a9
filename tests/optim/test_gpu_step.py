"""GivensAdam's Triton kernels against the same step made of separate operations, and the Jacobi pass against a loop.

On the GPU where there is one, else in Triton's interpreter (`interpreter.py`).
"""

from __future__ import annotations

import copy

import pytest
import torch
from interpreter import DEVICE, INTERPRETED, RUNS_HERE, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels import use_backend
from swallowtail.optim import GivensAdam, _two_sided
from swallowtail.optim._basis import jacobi_pass
from swallowtail.wiring import Butterfly


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


def trained(backend: str, dtype: torch.dtype, shapes: list[tuple[int, ...]], steps: int, **options: object):
    """Parameters after some steps of GivensAdam on given gradients, and how many steps were fused."""
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(DEVICE, dtype)) for s in shapes]
    with use_backend(backend):
        optimizer = GivensAdam(params, 1e-2, wiring="butterfly", **options)
        for _ in range(steps):
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator).to(DEVICE, dtype)
            optimizer.step()
    fused = sum(bases.fused is not None for bases in optimizer._updates._bases.values())
    return params, fused


@needs_kernels
@pytest.mark.parametrize("depth", [1, 2])
def test_fused_step_is_the_step(depth, monkeypatch):
    monkeypatch.setattr(_two_sided, "FUSED_FROM", 1)
    shapes = [(13, 8), (7,), (3, 2, 2, 2)]
    options = {"depth": depth, "refresh": 3, "weight_decay": 0.1, "maximize": depth == 1}
    ours, fused = trained("gpu", torch.float32, shapes, 4, **options)
    theirs, none_fused = trained("reference", torch.float64, shapes, 4, **options)
    assert (fused, none_fused) == (2, 0)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p.double(), q, atol=2e-5)


@needs_kernels
def test_fused_step_of_half_precision_parameters(monkeypatch):
    monkeypatch.setattr(_two_sided, "FUSED_FROM", 1)
    (p,), fused = trained("gpu", torch.bfloat16, [(12, 10)], 2)
    (q,), _ = trained("reference", torch.bfloat16, [(12, 10)], 2)
    assert fused == 1
    assert p.dtype == torch.bfloat16
    assert torch.allclose(p.float(), q.float(), rtol=2**-7, atol=1e-3)


@needs_kernels
def test_jacobi_pass():
    n = 13
    wiring = Butterfly(n, 2)
    samples = torch.randn(2, n, 11, generator=torch.Generator().manual_seed(n)).to(DEVICE)
    samples[0, 3], samples[1, 2], samples[1, 9:] = 0, -samples[1, 5], 0  # nothing, equals, nothing in many
    with use_backend("gpu"):
        angles, turned = jacobi_pass(samples, wiring)
    with use_backend("reference"):
        expected, expected_turned = jacobi_pass(samples.double(), wiring)
    assert torch.allclose(turned.double(), expected_turned, atol=1e-4)
    assert torch.allclose(angles.double().cos() ** 2, expected.cos() ** 2, atol=1e-4)


on_a_gpu = pytest.mark.skipif(
    INTERPRETED or not RUNS_HERE, reason="needs a GPU: CUDA graphs are not interpreted"
)
SHAPES = [(24, 16), (9,), (5, 6), (5, 6), (3, 2, 2, 2)]


def train(
    optimizer: GivensAdam,
    draws: torch.Generator,
    steps: int,
    kept: list[torch.Tensor] | None = None,
    bad: int = -1,
) -> None:
    """Some steps on gradients that stay at their addresses, or are new ones, ``kept``; NaN in step ``bad``."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(steps):
        for p in params:
            value = torch.randn(p.shape, generator=draws, dtype=torch.float64).to(DEVICE, p.dtype)
            if p.grad is None or kept is not None:
                p.grad = torch.empty_like(p)
            if kept is not None:
                kept.append(p.grad)  # so that the next ones lie elsewhere
            p.grad.copy_(value)
        if step == bad:
            params[1].grad[3] = float("nan")
        optimizer.step()


def pair(monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[GivensAdam, GivensAdam]:
    """The same optimiser on the same parameters, with recorded steps and without."""
    monkeypatch.setattr(_two_sided, "FUSED_FROM", 300)
    draws = torch.Generator().manual_seed(1)
    values = [torch.randn(s, generator=draws).to(DEVICE) for s in SHAPES]
    recorded, plain = (
        GivensAdam([torch.nn.Parameter(v.clone()) for v in values], 1e-2, **{"refresh": 3, **options})
        for _ in range(2)
    )
    monkeypatch.setattr(plain, "_places", lambda params: None)
    return recorded, plain


def same(one: GivensAdam, other: GivensAdam) -> bool:
    return all(
        torch.equal(p, q)
        and all(torch.equal(one.state[p][name], other.state[q][name]) for name in one.state[p])
        for p, q in zip(one.param_groups[0]["params"], other.param_groups[0]["params"], strict=True)
    )


@on_a_gpu
@pytest.mark.parametrize("fresh", [False, True], ids=["same addresses", "new addresses"])
def test_recorded_steps_are_the_steps(fresh, monkeypatch):
    recorded, plain = pair(monkeypatch, weight_decay=0.1, maximize=fresh)
    for optimizer in (recorded, plain):
        draws = torch.Generator().manual_seed(2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        kept: list[torch.Tensor] = []
        for _ in range(4):
            train(optimizer, draws, 3, kept if fresh else None)
            schedule.step()
    assert same(recorded, plain)
    assert bool(recorded._replay._recorded) == (not fresh)
    assert not plain._replay._recorded


@on_a_gpu
def test_a_bad_gradient_leaves_everything_as_it_was(monkeypatch):
    """The host hears of it late; what device and counters do is as if it had not been there."""
    optimizer, _ = pair(monkeypatch)
    draws = torch.Generator().manual_seed(3)
    train(optimizer, draws, 13)
    assert optimizer._replay._recorded
    before = copy.deepcopy(optimizer.state_dict()["state"])
    values = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    train(optimizer, draws, 1, bad=0)
    with pytest.warns(RuntimeWarning, match="skipped"):
        after = optimizer.state_dict()["state"]
    assert all(map(torch.equal, values, optimizer.param_groups[0]["params"]))
    for index, state in after.items():
        assert all(torch.equal(value, before[index][name]) for name, value in state.items())


@on_a_gpu
@pytest.mark.parametrize("bad", range(13, 17))
@pytest.mark.filterwarnings("ignore:some gradient")
def test_steps_after_a_bad_gradient(bad, monkeypatch):
    """Next to a refresh (at 15, since the bad one does not count) and away from one."""
    recorded, plain = pair(monkeypatch)
    for optimizer in (recorded, plain):
        train(optimizer, torch.Generator().manual_seed(5), 22, bad=bad)
        optimizer.state_dict()
    assert same(recorded, plain)


@on_a_gpu
def test_recordings_end_with_the_state_they_were_made_for(monkeypatch):
    """Loaded state, and tensors that are stacked otherwise for a while, are not read where the old ones were."""
    recorded, plain = pair(monkeypatch)
    for optimizer in (recorded, plain):
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
    assert same(recorded, plain)
