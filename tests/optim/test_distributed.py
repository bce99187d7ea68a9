"""Two processes under DistributedDataParallel (gloo): parameters stay equal, and equal to one process's."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from bounded import gloo

from swallowtail.optim import GivensAdam, GivensLBFGS, GivensNewton

OPTIMIZERS = {
    "adam": lambda p: GivensAdam(p, refresh=3),
    "lbfgs": lambda p: GivensLBFGS(p, max_iter=3),
    "newton": lambda p: GivensNewton(p, lr=0.05),
}
BATCH = 32


def _model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def _data():
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(BATCH, k, generator=generator, dtype=torch.float64) for k in (6, 2))


def _train(model, optimizer, x, y, world):
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        mean = loss.detach().clone()
        if world > 1:  # gradients are averaged by DDP, losses by whoever compares them
            dist.all_reduce(mean)
            mean /= world
        return mean

    for _ in range(8):
        optimizer.step(closure)
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def _worker(rank, name, folder):
    x, y = (z[rank * BATCH // 2 : (rank + 1) * BATCH // 2] for z in _data())
    model = torch.nn.parallel.DistributedDataParallel(_model())
    weights = _train(model, OPTIMIZERS[name](model.parameters()), x, y, 2)
    torch.save(weights, f"{folder}/{rank}.pt")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize(
    "name", ["adam", *(pytest.param(name, marks=pytest.mark.extras) for name in ("lbfgs", "newton"))]
)
def test_two_processes_agree_with_each_other_and_with_one(name, tmp_path):
    gloo(_worker, 2, name, str(tmp_path))
    a, b = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert torch.equal(a, b)
    model = _model()
    alone = _train(model, OPTIMIZERS[name](model.parameters()), *_data(), 1)
    assert torch.allclose(a, alone, rtol=1e-6, atol=1e-9)
