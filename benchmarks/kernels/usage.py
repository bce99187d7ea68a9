"""A GPU as people use it: few vectors, eager calls, CUDA graphs and torch.compile; nn.Linear beside each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import swallowtail as st
from benchmarks.kernels.contenders import Contender, relative_error, rows_of, truth_of
from swallowtail.kernels import reference

BATCH = 16  # the host's work decides how long a call takes


def forward(n: int, batch: int, dtype: torch.dtype) -> list[Contender]:
    """Without gradients: a layer whose angles may change, operators whose angles cannot, a dense matrix."""
    layer = st.nn.Rotate(n, init="random", seed=n, device="cuda")
    linear = torch.nn.Linear(n, n, bias=False, dtype=dtype, device="cuda")
    Q = layer.rotation.to(torch.float32)
    H = st.SymmetricOperator(
        st.Rotation(Q.wiring, Q.angles.detach()), torch.linspace(0.5, 2, n, device="cuda")
    )
    x = rows_of(batch, n, "cuda", dtype)
    angles = layer.angles.detach().double().cpu()[None]
    truth = truth_of(lambda z: reference.rotate(layer.wiring, angles, z)[0], x)
    calls: dict[str, Callable[[], Any]] = {
        "nn.Linear": lambda: linear(x),
        "swallowtail layer": lambda: layer(x),
        "swallowtail Q": lambda: H.rotation(x),
        "swallowtail H": lambda: H(x),
        "quadratic form": lambda: H.quadratic_form(x),
    }
    torch.compiler.reset()  # it compiles one piece of code for a few modules only
    compiled = {name: torch.compile(module, fullgraph=True, mode="reduce-overhead") for name, module in (
        ("nn.Linear", linear), ("swallowtail layer", layer))}  # fmt: skip
    runs = {name: _without_gradients(run) for name, run in calls.items()}
    runs |= {f"{name}, captured": _captured(runs[name]) for name in calls}
    runs |= {f"{name}, compiled": _without_gradients(lambda f=f: f(x)) for name, f in compiled.items()}
    right = {name: (lambda run=run: relative_error(run(), truth)) for name, run in runs.items() if name in (
        "swallowtail layer", "swallowtail Q", "swallowtail layer, compiled")}  # fmt: skip
    return [Contender(name, run, right.get(name)) for name, run in runs.items()]


def training(n: int, batch: int, dtype: torch.dtype, mode: str = "reduce-overhead") -> list[Contender]:
    """Forward and backward, with gradients for x and the parameters."""
    layer = st.nn.Rotate(n, init="random", seed=n, device="cuda")
    linear = torch.nn.Linear(n, n, bias=False, dtype=dtype, device="cuda")
    x = rows_of(batch, n, "cuda", dtype).requires_grad_()
    g, copy = rows_of(batch, n, "cuda", dtype), torch.empty(batch, n, dtype=dtype, device="cuda")

    def step(module: Any, parameter: torch.Tensor) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(module(x), (x, parameter), g)

    torch.compiler.reset()
    runs = {"copy": lambda: copy.copy_(g)}
    for name, module in (("nn.Linear", linear), ("swallowtail layer", layer)):
        (parameter,) = module.parameters()
        runs[name] = step(module, parameter)
        runs[f"{name}, captured"] = _captured(runs[name])
        runs[f"{name}, compiled"] = step(torch.compile(module, fullgraph=True, mode=mode), parameter)
    return [Contender(name, run) for name, run in runs.items()]


def _without_gradients(run: Callable[[], Any]) -> Callable[[], Any]:
    def quiet() -> Any:
        with torch.no_grad():
            return run()

    return quiet


def _captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """Replays a CUDA graph of the call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    return lambda kept=kept: graph.replay()
