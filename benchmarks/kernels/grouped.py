"""Contenders on grouped wirings and in training on a GPU, with a copy, dense matrices and torch.bmm beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import swallowtail as st
from benchmarks.kernels.contenders import Contender, relative_error, rows_of, truth_of
from swallowtail import datasets
from swallowtail.kernels import reference

WRONG = 0.05  # a wrong kernel is off by order one; many rounds in bf16 by up to one per cent


def fixed(n: int, batch: int, dtype: torch.dtype) -> list[Contender]:
    """Fixed groups of 128 coordinates, eight layers: products, and training beside torch.bmm of the same matrices."""
    wiring = st.Grouped.fixed(n, 128, 8)
    layer = st.nn.Rotate(wiring=wiring, init="random", seed=n, device="cuda")
    Q = st.Rotation(wiring, layer.angles.detach().clone())
    H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, n, device="cuda"))
    x, g = rows_of(batch, n, "cuda", dtype), rows_of(batch + 1, n, "cuda", dtype)[:batch]
    y, z = torch.empty_like(x), x.detach().requires_grad_()
    angles = Q.angles.double().cpu()[None]
    truth = truth_of(lambda v: reference.rotate(wiring, angles, v)[0], x)
    dense = Q.to_dense().to(dtype)
    made = dense.view(n // 128, 128, n // 128, 128).diagonal(dim1=0, dim2=2).permute(2, 1, 0).contiguous()
    blocks = made.requires_grad_()
    columns = lambda t: t.view(batch, n // 128, 128).transpose(0, 1)
    multiply = lambda: torch.bmm(columns(z), blocks)
    return [
        Contender("copy", lambda: y.copy_(x)),
        Contender("swallowtail Q", lambda: Q(x), lambda: relative_error(Q(x), truth), Q.multiply_adds),
        Contender("swallowtail H", lambda: H(x), None, H.multiply_adds),
        Contender("bmm of made blocks", lambda: torch.bmm(columns(x), blocks.detach(), out=columns(y))),
        Contender("dense", lambda: x @ dense.T, None, n * n),
        Contender("swallowtail forward+backward", _training(lambda: layer(z), (z, layer.angles), g)),
        Contender("bmm forward+backward", _training(multiply, (z, blocks), columns(g))),
    ]


def free(batch: int, dtype: torch.dtype) -> list[Contender]:
    """Rounds of groups as a fit to a covariance of MNIST's size has them: products, and training."""
    Q = mnist_like_groups("cuda")
    layer = st.nn.Rotate(wiring=Q.wiring, init="random", seed=0, device="cuda")
    H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, Q.n, device="cuda"))
    x, g = rows_of(batch, Q.n, "cuda", dtype), rows_of(batch + 1, Q.n, "cuda", dtype)[:batch]
    y, z, dense = torch.empty_like(x), x.detach().requires_grad_(), Q.to_dense().to(dtype)
    truth = truth_of(lambda v: reference.rotate(Q.wiring, Q.angles.double().cpu()[None], v)[0], x)
    return [
        Contender("copy", lambda: y.copy_(x)),
        Contender("swallowtail Q", lambda: Q(x), lambda: relative_error(Q(x), truth), Q.multiply_adds),
        Contender("swallowtail H", lambda: H(x), None, H.multiply_adds),
        Contender("dense", lambda: x @ dense.T, None, Q.n**2),
        Contender("swallowtail layer, forward", lambda: layer(z)),
        Contender("swallowtail forward+backward", _training(lambda: layer(z), (z, layer.angles), g)),
    ]


def fitted(batch: int, dtype: torch.dtype, side: int = 64, device: str = "cuda") -> list[Contender]:
    """Fits of the exponential kernel on side × side points, made where they are timed: the default, and in groups.

    n = 4096 and K = 24576 with 64 × 64 points.
    """
    kernel = datasets.grid_kernel((side, side), "exponential", 8.0, scramble=0)
    matrix = torch.from_numpy(kernel).float().to(device)
    x = rows_of(batch, side * side, device, dtype)
    y, found = torch.empty_like(x), []
    for name, method in (("swallowtail", "auto"), ("swallowtail grouped", "grouped")):
        fit = st.fit_symmetric(matrix, method=method)
        H, Q = fit.operator, fit.operator.rotation
        truth = truth_of(lambda v, Q=Q: reference.rotate(Q.wiring, Q.angles.double().cpu()[None], v)[0], x)
        error = relative_error(Q(x), truth)
        print(f"{name}, {fit.angle:.2f}°, K = {Q.n_rotations}: relative error of Q x in {dtype} {error:.2g}")
        if not error < WRONG:
            raise RuntimeError(f"wrong result: relative error {error:.3g}")
        found += [
            Contender(f"{name} Q", lambda Q=Q: Q(x), None, Q.multiply_adds),
            Contender(f"{name} H", lambda H=H: H(x), None, H.multiply_adds),
        ]
    dense = Q.to_dense().to(dtype)
    return [
        Contender("copy", lambda: y.copy_(x)),
        *found,
        Contender("dense", lambda: torch.mm(x, dense.T, out=y), None, Q.n**2),
    ]


def training(n: int, batch: int, dtype: torch.dtype) -> list[Contender]:
    """Forward and backward of a butterfly and of nn.Linear, in half precision or float32."""
    layer = st.nn.Rotate(n, init="random", seed=n, device="cuda")
    linear = torch.nn.Linear(n, n, bias=False, device="cuda", dtype=dtype)
    z = rows_of(batch, n, "cuda", dtype).requires_grad_()
    g, y = rows_of(batch + 1, n, "cuda", dtype)[:batch], torch.empty(batch, n, device="cuda", dtype=dtype)
    run = _training(lambda: layer(z), (z, layer.angles), g)
    return [
        Contender("copy", lambda: y.copy_(z.detach())),
        Contender("swallowtail forward+backward", run),
        Contender("nn.Linear forward+backward", _training(lambda: linear(z), (z, linear.weight), g)),
    ]


def _training(
    run: Callable[[], torch.Tensor], sources: tuple[torch.Tensor, ...], grad: torch.Tensor
) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(run(), sources, grad)


def mnist_like_groups(device: str = "cpu") -> st.Rotation:
    """n = 784, K = 3840: eight rounds of 16 groups of 16 out of 426 coordinates, 30 rotations in each."""
    rng = np.random.default_rng(0)
    touched = rng.permutation(784)[:426]

    def one_round() -> list[Any]:
        groups = rng.permutation(touched)[:256].reshape(16, 16)
        return [(group, [rng.choice(group, 2, replace=False) for _ in range(30)]) for group in groups]

    wiring = st.Grouped(784, [one_round() for _ in range(8)])
    angles = rng.uniform(-math.pi / 4, math.pi / 4, wiring.n_rotations)
    return st.Rotation(wiring, torch.tensor(angles, dtype=torch.float32, device=device))
