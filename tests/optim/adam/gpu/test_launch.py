"""GivensAdam's GPU kernels against the same step made of separate operations.

On the GPU where there is one, else in Triton's interpreter (`interpreter.py`).
"""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, needs_kernels, only_without_kernels, run_interpreted
from optim.low_rank import KINDS, check_same_rotations, low_rank_samples

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels import use_backend
from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import bases as adam_bases
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.closed_form import angles_from_moments, angles_from_samples
from swallowtail.wiring import Butterfly


@only_without_kernels
def test_in_the_interpreter():
    run_interpreted(__file__)


def trained(backend: str, dtype: torch.dtype, shapes: list[tuple[int, ...]], steps: int, **options: object):
    """Parameters after some steps of GivensAdam on given gradients, and how many steps were fused."""
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(DEVICE, dtype)) for s in shapes]
    with use_backend(backend):
        optimizer = GivensAdam(params, 1e-2, **{"wiring": "butterfly", **options})
        for _ in range(steps):
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator).to(DEVICE, dtype)
            optimizer.step()
    fused = sum(bases.fused is not None for bases in optimizer._bases._bases.values())
    return params, fused


@needs_kernels
@pytest.mark.parametrize("depth", [1, 2])
def test_fused_step_is_the_step(depth, monkeypatch):
    monkeypatch.setattr(adam_bases, "FUSED_FROM", 1)
    shapes = [(13, 8), (7,), (3, 2, 2, 2)]
    options = {"depth": depth, "refresh": 3, "weight_decay": 0.1, "maximize": depth == 1}
    ours, fused = trained("gpu", torch.float32, shapes, 4, **options)
    theirs, none_fused = trained("reference", torch.float64, shapes, 4, **options)
    assert (fused, none_fused) == (2, 0)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p.double(), q, atol=2e-5)


@needs_kernels
def test_fused_step_of_half_precision_parameters(monkeypatch):
    monkeypatch.setattr(adam_bases, "FUSED_FROM", 1)
    (p,), fused = trained("gpu", torch.bfloat16, [(12, 10)], 2)
    (q,), _ = trained("reference", torch.bfloat16, [(12, 10)], 2)
    assert fused == 1
    assert p.dtype == torch.bfloat16
    assert torch.allclose(p.float(), q.float(), rtol=2**-7, atol=1e-3)


@needs_kernels
def test_pairs_are_others_after_each_fit():
    options = {"wiring": "pairs", "max_side": 16, "refresh": 2}  # on the right alone
    (p,), _ = trained("gpu", torch.float32, [(20, 8)], 5, **options)
    (q,), _ = trained("reference", torch.float64, [(20, 8)], 5, **options)
    assert torch.allclose(p.double(), q, atol=2e-5)


@needs_kernels
def test_angles_from_samples():
    n = 13
    wiring = Butterfly(n, 2)
    samples = torch.randn(2, n, 11, generator=torch.Generator().manual_seed(n)).to(DEVICE)
    samples[0, 3], samples[1, 2], samples[1, 9:] = 0, -samples[1, 5], 0  # nothing, equals, nothing in many
    with use_backend("gpu"):
        angles, turned = gpu_for(samples).angles_from_samples(samples, wiring)
    expected, expected_turned = angles_from_samples(samples.double(), wiring)
    assert torch.allclose(turned.double(), expected_turned, atol=1e-4)
    assert torch.allclose(angles.double().cos() ** 2, expected.cos() ** 2, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("n", [8, 13])
def test_rounding_noise_is_not_rotated(n):
    """The same coordinates are left alone as on a CPU, from samples and from moments."""
    wiring = Butterfly(n, 2)
    z = torch.stack([low_rank_samples(kind, n).float() for kind in KINDS])
    with use_backend("gpu"):
        angles, _ = gpu_for(z.to(DEVICE)).angles_from_samples(z.to(DEVICE), wiring)
    check_same_rotations(angles.cpu(), angles_from_samples(z, wiring)[0])
    check_same_rotations(angles.cpu(), angles_from_moments(z @ z.mT, wiring))
