"""The kernels of dense groups against the same steps made of separate operations.

On the GPU where there is one, else in Triton's interpreter (`interpreter.py`).
"""

from __future__ import annotations

import warnings
from unittest import mock

import pytest
import torch
from interpreter import DEVICE, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels import use_backend
from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import groups, optimizer, small
from swallowtail.optim.adam.gpu import gpu_for


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


def trained(
    backend: str,
    dtype: torch.dtype,
    shapes: tuple[tuple[int, ...], ...] = ((6, 5), (6, 5), (3,)),
    steps: int = 4,
    **options: object,
) -> list[torch.nn.Parameter]:
    """Parameters after some steps: two matrices that are stacked, and a vector. Fits come when a GPU has them."""
    draws = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=draws).to(DEVICE, dtype)) for s in shapes]
    together = lambda groups: {p: 0 for group in groups for p in group["params"]}
    with (
        use_backend(backend),
        mock.patch.object(optimizer, "turns", together),
        mock.patch.object(small, "turns", together),
    ):
        ours = GivensAdam(params, 1e-2, **{"refresh": 2, "weight_decay": 0.1, **options})
        for _ in range(steps):
            for p in params:
                p.grad = torch.randn(p.shape, generator=draws).to(DEVICE, dtype)
            ours.step()
    return params


def assert_same_steps(shapes: tuple[tuple[int, ...], ...], **options: object) -> None:
    """Parameters after the kernels' steps are those of the reference.

    In the interpreter to 1e-3, where a step is at most 1e-2. Tensor cores round to bf16. In a new basis a step is a
    sign, and rounding decides about the sign of what is nearly zero: changing gradients of the reference by 5e-4 of
    themselves moves some of its own parameters by 1e-2. So on a GPU the whole matrix is compared.
    """
    ours, theirs = (
        trained(*kind, shapes, **options) for kind in (("gpu", torch.float32), ("reference", torch.float64))
    )
    for p, q, start in zip(ours, theirs, trained("reference", torch.float64, shapes, steps=0), strict=True):
        if DEVICE == "cpu":
            assert torch.allclose(p.double(), q, atol=1e-3)
        assert (p.double() - q).norm() <= 0.1 * (q - start).norm()


@needs_kernels
def test_fused_step_is_the_step():
    ours, theirs = trained("gpu", torch.float32), trained("reference", torch.float64)
    for p, q in zip(ours, theirs, strict=True):
        # A step is at most 1e-2. Products on tensor cores have ten bits, and the bases follow what they give.
        assert torch.allclose(p.double(), q, atol=1e-3)


@needs_kernels
def test_a_side_without_groups():
    options = {"shapes": ((70, 3),), "max_side": 64}  # and more rows than the moments take in at a time
    (p,), (q,) = trained("gpu", torch.float32, **options), trained("reference", torch.float64, **options)
    assert torch.allclose(p.double(), q, atol=1e-3)


@needs_kernels
@pytest.mark.parametrize("maximize", [False, True])
def test_matrices_of_several_tiles(maximize, monkeypatch):
    """The groups are of 4 and 3 coordinates: tiles that are not whole; and the bases change twice."""
    monkeypatch.setattr(groups, "LONGEST", 4)
    monkeypatch.setattr(groups, "SHORTEST", 2)
    options = {"shapes": ((8, 9), (8, 9)), "steps": 5, "maximize": maximize}
    ours, theirs = (
        trained(*kind, **options) for kind in (("gpu", torch.float32), ("reference", torch.float64))
    )
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p.double(), q, atol=1e-3)


@needs_kernels
def test_matrices_with_groups_of_several_sizes():
    # Fits see four gradients: from fewer, rounding errors would choose some of the directions.
    assert_same_steps(((16, 16), (32, 16), (16, 32), (16, 5)), steps=6, refresh=5)


@needs_kernels
def test_vectors_of_several_lengths():
    options = {"shapes": ((3,), (1500,), (3,), ()), "steps": 3}
    ours, theirs = (
        trained(*kind, **options) for kind in (("gpu", torch.float32), ("reference", torch.float64))
    )
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p.double(), q, atol=1e-6)


@needs_kernels
def test_half_precision_parameters():
    options = {"steps": 2, "weight_decay": 0.0}
    ours, theirs = (trained(kind, torch.bfloat16, **options) for kind in ("gpu", "reference"))
    for p, q in zip(ours, theirs, strict=True):
        assert p.dtype == torch.bfloat16
        # A direction whose sign is at stake (`assert_same_steps`) is worth half a step to an entry.
        assert torch.allclose(p.float(), q.float(), rtol=2**-6, atol=1e-3 if DEVICE == "cpu" else 5e-3)


@needs_kernels
@pytest.mark.parametrize("bad", ["rate", "parameter"])
def test_no_matrix_is_written_if_one_would_overflow(bad):
    draws = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=draws).to(DEVICE)) for s in ((6, 5), (4, 3))]
    with use_backend("gpu"):
        optimizer = GivensAdam(params, 1e-2)
        for p in params:
            p.grad = torch.randn(p.shape, generator=draws).to(DEVICE)
        optimizer.step()
        if bad == "rate":
            optimizer.param_groups[0]["lr"] = 1e38
        else:
            params[1].data[0, 0] = torch.inf
        before = [p.detach().clone() for p in params]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer.step()
            optimizer.state_dict()  # a GPU says it only now
    assert any("some parameter" in str(each.message) for each in said)
    assert all(map(torch.equal, before, params))


@needs_kernels
def test_entries_without_gradients_stay_without_epsilon():
    p = torch.nn.Parameter(torch.ones(4, 3, device=DEVICE))
    with use_backend("gpu"):
        optimizer = GivensAdam([p], 1e-2, eps=0.0)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        optimizer.state_dict()
    assert torch.equal(p, torch.ones_like(p))


@needs_kernels
def test_tensors_at_odd_addresses():
    """Kernels find tensors by multiples of 16 entries; others are copied, or their state is left to PyTorch."""
    draws = torch.Generator().manual_seed(0)
    results = []
    for odd in (False, True):
        whole = torch.randn(40, generator=draws.manual_seed(1)).to(DEVICE)
        p = torch.nn.Parameter((whole[1:25] if odd else whole[1:25].clone()).view(6, 4))
        conv = torch.nn.Parameter(torch.randn(2, 3, 2, 2, generator=draws).to(DEVICE))
        if odd:
            conv = torch.nn.Parameter(conv.detach().to(memory_format=torch.channels_last))
        with use_backend("gpu"):
            optimizer = GivensAdam([p, conv], 1e-2, refresh=2)
            for _ in range(4):
                for each in (p, conv):
                    each.grad = torch.randn(each.shape, generator=draws).to(DEVICE)
                if odd:
                    p.grad = torch.zeros(40, device=DEVICE)[3:27].view(6, 4).copy_(p.grad)
                optimizer.step()
        results.append((p, conv))
    for (p, conv), (q, other) in [results]:
        assert torch.equal(p, q)
        assert torch.equal(conv, other)


@needs_kernels
def test_state_that_kernels_cannot_find():
    p = torch.nn.Parameter(torch.zeros(6, 5, device=DEVICE))
    p.grad = torch.ones_like(p)
    with use_backend("gpu"):
        optimizer = GivensAdam([p])
        optimizer.step()
        state = optimizer.state[p]
        assert gpu_for(p).takes(state)
        state["exp_avg"] = torch.zeros(40, device=DEVICE)[1:31].view(5, 6)
        assert not gpu_for(p).takes(state)
        optimizer.step()
    assert torch.isfinite(p).all()
