"""The contenders of the kernel benchmark: what each computes, and how its result is checked."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

import swallowtail as st
from swallowtail import ops
from swallowtail.kernels import reference
from swallowtail.kernels.cpu.coefficients import prepare
from swallowtail.kernels.cpu.launch import looped
from swallowtail.kernels.cpu.schedule import schedule


@dataclass
class Contender:
    """One way to do a job. ``error()`` is its relative error against float64; a floor has none."""

    name: str
    run: Callable[[], Any]
    error: Callable[[], float] | None = None
    multiply_adds: int | None = None


def rotate(
    n: int, batch: int, device: str, dtype: torch.dtype = torch.float32, peers: bool = True
) -> list[Contender]:
    """Q x on a batch of rows."""
    Q = st.Rotation.random(n, seed=n, device=device)
    x = rows_of(batch, n, device, dtype)
    y, dense = torch.empty_like(x), Q.to_dense().to(dtype)
    truth = truth_of(lambda z: reference.rotate(Q.wiring, Q.angles.double().cpu()[None], z)[0], x)
    result = [
        Contender("copy", lambda: y.copy_(x)),
        Contender("swallowtail Q", lambda: Q(x), lambda: relative_error(Q(x), truth), Q.multiply_adds),
    ]
    if n <= 4096:
        result.append(
            Contender("dense", lambda: x @ dense.T, lambda: relative_error(x @ dense.T, truth), n * n)
        )
    if dtype == torch.float32:
        result.append(Contender("rfft", lambda: torch.fft.rfft(x)))
    if peers and device == "cpu":
        result.append(_scipy_factors(Q, x, truth))
        if has_lazylinop():
            result.append(_lazylinop(Q, x, truth))
    return result


def symmetric(n: int, batch: int, device: str, dtype: torch.dtype = torch.float32) -> list[Contender]:
    """Q D Qᵀ x on a batch of rows, and its rival at equal multiply-adds."""
    Q = st.Rotation.random(n, seed=n, device=device)
    H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, n, device=device))
    x = rows_of(batch, n, device, dtype)
    y = torch.empty_like(x)
    angles, d = Q.angles.double().cpu()[None], H.eigenvalues.double().cpu()[None]
    truth = truth_of(lambda z: reference.symmetric(Q.wiring, angles, d, z)[0], x)
    rank = max(1, round((H.multiply_adds - n) / (2 * n)))
    U = torch.linalg.qr(rows_of(n, rank, device, torch.float32))[0].to(dtype)
    exact = truth_of(lambda z: (0.3 * z + z @ U.double().cpu() @ U.double().cpu().T)[0], x)

    def low_rank() -> torch.Tensor:
        return torch.addmm(x, x @ U, U.T, beta=0.3)

    result = [
        Contender("copy", lambda: y.copy_(x)),
        Contender("swallowtail H", lambda: H(x), lambda: relative_error(H(x), truth), H.multiply_adds),
        Contender(
            f"c·I + rank {rank}", low_rank, lambda: relative_error(low_rank(), exact), n * (2 * rank + 1)
        ),
        Contender("quadratic form", lambda: H.quadratic_form(x)),
    ]
    if dtype.itemsize == 2 and n <= 4096:
        dense = H.to_dense().to(dtype)
        result.append(Contender("dense", lambda: x @ dense, lambda: relative_error(x @ dense, truth), n * n))
    if dtype == torch.float32:
        result.append(Contender("rfft", lambda: torch.fft.rfft(x)))
    return result


def one_at_a_time(contenders: list[Contender]) -> list[Contender]:
    """The same on a GPU that is waited for after every call: the host's work is part of the time."""

    def waited(run: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (run(), torch.cuda.synchronize())

    return [replace(c, run=waited(c.run)) for c in contenders]


def training(n: int, batch: int, device: str) -> list[Contender]:
    """Forward and backward of Q x, gradients for x and the angles."""
    layer = st.nn.Rotate(n, init="random", seed=n, device=device)
    x = rows_of(batch, n, device, torch.float32).requires_grad_()
    g, y = rows_of(batch, n, device, torch.float32), torch.empty(batch, n, device=device)

    def step(rows: int = batch) -> tuple[torch.Tensor, ...]:
        z, grad = (x, g) if rows == batch else (x[:rows].detach().requires_grad_(), g[:rows])
        return torch.autograd.grad(layer(z), (z, layer.angles), grad)

    def trained() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            layer.angles.add_(0.0)  # as an optimiser's step would: coefficients have to be made anew
        return step()

    def error(rows: int = min(batch, 500)) -> float:
        wiring, angles = layer.wiring, layer.angles.detach().double().cpu()[None]
        z, grad = x[:rows].detach().double().cpu()[None], g[:rows].double().cpu()[None]
        truth = reference.rotate_backward(wiring, angles, reference.rotate(wiring, angles, z), grad)
        grad_x, grad_angles = step(rows)
        return max(relative_error(grad_x, truth[0][0]), relative_error(grad_angles, truth[1][0]))

    return [
        Contender("copy", lambda: y.copy_(x.detach())),
        Contender("rfft", lambda: torch.fft.rfft(x.detach())),
        Contender("swallowtail forward+backward", step, error),
        Contender("swallowtail forward+backward, new angles", trained),
    ]


def one_vector(n: int) -> list[Contender]:
    """One vector through the public interface, no gradient."""
    Q = st.Rotation.random(n, seed=n)
    H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, n))
    x, dense = torch.randn(n), Q.to_dense()
    truth = truth_of(lambda z: reference.rotate(Q.wiring, Q.angles.double()[None], z)[0], x[None])
    return [
        Contender("dense", lambda: dense @ x, lambda: relative_error((dense @ x)[None], truth), n * n),
        Contender("swallowtail Q", lambda: Q(x), lambda: relative_error(Q(x)[None], truth), Q.multiply_adds),
        Contender("swallowtail H", lambda: H(x), None, H.multiply_adds),
    ]


def pairs(device: str, batch: int) -> list[Contender]:
    """Data-chosen pairs as a covariance of MNIST's size has them, beside the butterfly at n = 1024."""
    Q = mnist_like_pairs(device)
    H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, Q.n, device=device))
    B = st.Rotation.random(1024, seed=0, device=device)
    x, z = rows_of(batch, Q.n, device, torch.float32), rows_of(batch, 1024, device, torch.float32)
    y, dense = torch.empty_like(x), Q.to_dense()
    truth = truth_of(lambda rows: reference.rotate(Q.wiring, Q.angles.double().cpu()[None], rows)[0], x)
    result = [
        Contender("copy", lambda: y.copy_(x)),
        Contender("swallowtail pairs Q", lambda: Q(x), lambda: relative_error(Q(x), truth), Q.multiply_adds),
        Contender("swallowtail pairs H", lambda: H(x), None, H.multiply_adds),
        Contender("butterfly 1024", lambda: B(z), None, B.multiply_adds),
        Contender("dense", lambda: x @ dense.T, lambda: relative_error(x @ dense.T, truth), Q.n**2),
    ]
    return result + _pairs_on_a_cpu(H, x) if device == "cpu" else result


def _pairs_on_a_cpu(H: st.SymmetricOperator, x: torch.Tensor) -> list[Contender]:
    """The same H in rounds of groups, by the loop that machine code replaces, and rivals of its speed."""
    n, wiring, angles, d = H.n, H.rotation.wiring, H.rotation.angles, H.eigenvalues
    grouped, order = schedule(wiring)
    G = st.SymmetricOperator(st.Rotation(grouped, angles[order]), d)
    exact = truth_of(lambda z: reference.symmetric(wiring, angles.double()[None], d.double()[None], z)[0], x)
    result = [
        Contender("quadratic form", lambda: H.quadratic_form(x)),
        Contender(
            "swallowtail grouped H", lambda: G(x), lambda: relative_error(G(x), exact), G.multiply_adds
        ),
    ]
    coefficients = prepare(wiring, angles[None], d[None])[0]
    for count, name in ((len(x), "loop over pairs H"), (1, "loop over pairs H, one vector")):
        loop, y = looped(wiring, "symmetric", coefficients), torch.empty_like(x)
        result.append(
            Contender(
                name,
                lambda loop=loop, y=y, count=count: loop(x.data_ptr(), y.data_ptr(), count),
                None,
                H.multiply_adds,
            )
        )
    result.append(Contender("swallowtail pairs H, one vector", lambda: H(x[0]), None, H.multiply_adds))
    for rank in (10, 12):
        U = torch.linalg.qr(rows_of(n, rank, "cpu", torch.float32))[0]
        run = lambda U=U: torch.addmm(x, x @ U, U.T, beta=0.3)
        result.append(Contender(f"c·I + rank {rank}", run, None, n * (2 * rank + 1)))
    return result


def mnist_like_pairs(device: str = "cpu") -> st.Rotation:
    """n = 784, K = 3920 in 280 layers of 14: one coordinate in every layer, 358 coordinates never touched."""
    rng = np.random.default_rng(0)
    touched = rng.permutation(784)[:426]
    layers = []
    for _ in range(280):
        others = rng.permutation(touched[1:])[:27]
        layers.append(np.concatenate([touched[:1], others]).reshape(-1, 2))
    wiring = st.Pairs(784, layers)
    angles = rng.uniform(-math.pi / 4, math.pi / 4, wiring.n_rotations)
    return st.Rotation(wiring, torch.tensor(angles, dtype=torch.float32, device=device))


def backward_memory(n: int, depth: int, batch: int) -> int:
    """Peak bytes that forward and backward allocate beyond parameters, inputs and their gradients."""
    layer = st.nn.Rotate(n, depth=depth, init="random", seed=0)
    x, g = torch.randn(batch, n, requires_grad=True), torch.randn(batch, n)
    torch.autograd.grad(layer(x), (x, layer.angles), g)
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        torch.autograd.grad(ops.rotate(x, layer.wiring, layer.angles), (x, layer.angles), g)
    level = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return peak - (layer.angles.numel() + x.numel()) * 4


def _scipy_factors(Q: st.Rotation, x: torch.Tensor, truth: torch.Tensor) -> Contender:
    factors = [factor.astype(np.float32) for factor in reversed(Q.to_sparse_factors())]
    columns = np.ascontiguousarray(x.numpy().T)

    def run() -> np.ndarray:
        return functools.reduce(lambda z, factor: factor @ z, factors, columns)

    return Contender(
        "scipy CSR factors", run, lambda: relative_error(torch.from_numpy(run().T), truth), 4 * Q.n_rotations
    )


def has_lazylinop() -> bool:
    """Whether it is installed: it comes with the extra "bench"."""
    return find_spec("lazylinop") is not None


def _lazylinop(Q: st.Rotation, x: torch.Tensor, truth: torch.Tensor) -> Contender:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it names the optional packages it does without
        from lazylinop.butterfly import ksm
    values = []
    for index, p in enumerate(Q.wiring.strides):
        theta = Q.angles[Q.wiring.offsets[index] : Q.wiring.offsets[index + 1]].numpy().reshape(-1, p)
        c, s = np.cos(theta), np.sin(theta)
        values.append(np.stack([np.stack([c, -s], 1), np.stack([s, c], 1)], 1).astype(np.float32))
    product = ksm(values)
    columns = np.ascontiguousarray(x.numpy().T)
    check = lambda: relative_error(torch.from_numpy(np.ascontiguousarray((product @ columns).T)), truth)
    return Contender("lazylinop ksm", lambda: product @ columns, check, 4 * Q.n_rotations)


def rows_of(batch: int, n: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    """Random vectors, the same for the same number of them."""
    generator = torch.Generator(device).manual_seed(batch)
    return torch.randn(batch, n, generator=generator, device=device).to(dtype)


# Rows compared with the float64 reference, from the end: that is where a tail would be forgotten.
_CHECKED = 16


def truth_of(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """What a float64 function makes of the last vectors."""
    return function(x[-_CHECKED:].double().cpu()[None])


def relative_error(result: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the vectors that `truth_of` looked at."""
    if result.shape[0] != truth.shape[0]:
        result = result[-_CHECKED:]
    return float((result.double().cpu() - truth).norm() / truth.norm())
