"""swallowtail warmup: compile the kernels now, so that the first call of a program does not."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from swallowtail import checks
from swallowtail.errors import ArgumentError


class Job(NamedTuple):
    """Calls that make the compilers run."""

    what: str
    device: str
    run: Callable[[], Any]


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    warmup = commands.add_parser(
        "warmup",
        help="compile kernels ahead of their first use",
        description="Compiles what products, gradients, fits and optimisers need, and says what. Compiled code is kept "
        "on disk: a second warmup takes seconds. GPU kernels are compiled for each length n.",
    )
    warmup.add_argument(
        "--device", choices=("all", "cpu", "cuda"), default="all", help="(default: all that are there)"
    )
    warmup.add_argument(
        "--n",
        type=int,
        nargs="+",
        default=[1024, 4096],
        help="lengths of vectors on the GPU (default: 1024 4096)",
    )
    warmup.add_argument(
        "--calibrate",
        action="store_true",
        help="measure products too, a minute per device, for fits with --budget time",
    )
    warmup.add_argument("--quiet", action="store_true", help="no progress bar")
    warmup.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    import torch

    from swallowtail.progress import Bar

    for n in options.n:
        checks.integer("--n", n, at_least=2)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(
            "--device", "a device that PyTorch sees", "cuda, of which it sees none", "try --device cpu"
        )
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    jobs = [
        job for job in _all_jobs(options.n) if job.device in devices and options.device in ("all", job.device)
    ]
    began, total = time.perf_counter(), 0
    bar = Bar(jobs, unit="job", disable=options.quiet or not sys.stderr.isatty(), leave=False)
    for job in bar:
        bar.set_description(f"{job.device}: {job.what}")
        start = time.perf_counter()
        with _compiled() as names:
            job.run()
        total += len(names)
        listing = f"compiled {len(names)}: {_short(names)}" if names else "nothing to compile"
        Bar.write(
            f"{job.device:5s}{job.what:32s}{time.perf_counter() - start:6.1f} s  {listing}", file=sys.stdout
        )
    if options.calibrate:
        for device in devices if options.device == "all" else [options.device]:
            _calibrate(device, options.quiet)
    seconds = time.perf_counter() - began
    print(f"{total} kernels in {seconds:.0f} s; kept in {', '.join(_folders(devices))}")


def _calibrate(device: str, quiet: bool) -> None:
    """Measure products and say where the times are kept."""
    from swallowtail.fitting.timing import calibrate
    from swallowtail.progress import Bar

    with Bar(desc=f"{device}: times", disable=quiet or not sys.stderr.isatty(), leave=False) as bar:

        def progress(done: int, total: int, label: str) -> None:
            bar.total, bar.n = total, done
            bar.set_postfix_str(label)

        path = calibrate(device, progress)
    print(f"{device:5s}times of products are kept in {path}")


def _short(names: list[str], most: int = 5) -> str:
    """Each name once, and how many more there are."""
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + more


def _folders(devices: list[str]) -> list[str]:
    """Where compiled code is kept."""
    from swallowtail.kernels.cpu import jit

    numba = os.environ.get("NUMBA_CACHE_DIR") or str(jit.KERNELS / "__pycache__")
    triton = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    return [numba, *([triton] if "cuda" in devices else [])]


@contextlib.contextmanager
def _compiled() -> Iterator[list[str]]:
    """The names of the functions that are compiled, or loaded on a GPU, within the block."""
    from swallowtail import kernels
    from swallowtail.kernels.cpu import jit

    names: list[str] = []
    before: set[Any] = set()
    gpu = kernels.available_backends()["gpu"] is None
    if gpu:
        from swallowtail.kernels.gpu import launch

        before = set(launch.loaded())
    with jit.watch_compilation(names):
        yield names
    if gpu:
        names += [name for key, name in launch.loaded().items() if key not in before]


def _all_jobs(lengths: list[int]) -> list[Job]:
    few, both = [64, 100], ("float32", "float64")
    jobs = [Job("products", "cpu", partial(_products, "cpu", few, both, 300))]
    jobs.append(Job("gradients", "cpu", partial(_gradients, "cpu", few, both, 300)))
    jobs.append(Job("machine code of chosen pairs", "cpu", partial(_chosen_pairs, both)))
    jobs += [Job(f"fit, method {m!r}", "cpu", partial(_fit, m)) for m in ("pairs", "butterfly", "hybrid")]
    jobs.append(Job("GivensAdam", "cpu", partial(_adam, "cpu")))
    for n in lengths:
        for dtype in ("float32", "bfloat16"):
            arguments = ("cuda", [n], (dtype,), 2**20 // n)
            jobs.append(Job(f"products, n = {n}, {dtype}", "cuda", partial(_products, *arguments)))
            jobs.append(Job(f"gradients, n = {n}, {dtype}", "cuda", partial(_gradients, *arguments)))
    return [*jobs, Job("GivensAdam", "cuda", partial(_adam, "cuda"))]


def _products(device: str, lengths: list[int], dtypes: tuple[str, ...], many: int) -> None:
    """Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x of few and of many vectors, by operators and by a layer."""
    import torch

    from swallowtail import Rotation, SymmetricOperator, nn

    for n in lengths:
        for dtype in (getattr(torch, name) for name in dtypes):
            wide = torch.promote_types(dtype, torch.float32)
            Q = Rotation.random(n, seed=0, dtype=wide, device=device)
            H = SymmetricOperator(Q, torch.linspace(0.5, 2, n, dtype=wide, device=device))
            layer = nn.Rotate(n, dtype=wide, device=device)
            for count in (1, 16, max(32, many)):
                x = torch.ones(count, n, dtype=dtype, device=device)
                with torch.no_grad():
                    for product in (Q, Q.T, H, H.quadratic_form, layer, layer.T):
                        product(x)
    _wait(device)


def _chosen_pairs(dtypes: tuple[str, ...]) -> None:
    """Products with a wiring until it has earned machine code, for one vector and for many."""
    import torch

    from swallowtail import Pairs, Rotation, SymmetricOperator

    wiring = Pairs(64, [[(k, k + p) for k in range(64) if not k & p] for p in (1, 2, 4, 8)])
    for dtype in (getattr(torch, name) for name in dtypes):
        Q = Rotation(wiring, torch.ones(wiring.n_rotations, dtype=dtype))
        H = SymmetricOperator(Q, torch.ones(64, dtype=dtype))
        for count in (5000, 500, 1):  # on all threads, on one
            H(torch.ones(count, 64, dtype=dtype))


def _gradients(device: str, lengths: list[int], dtypes: tuple[str, ...], many: int) -> None:
    """Forward and backward of a layer."""
    import torch

    from swallowtail import nn

    for n in lengths:
        for dtype in (getattr(torch, name) for name in dtypes):
            layer = nn.Rotate(n, dtype=torch.promote_types(dtype, torch.float32), device=device)
            for count in (16, max(32, many)):
                x = torch.ones(count, n, dtype=dtype, device=device, requires_grad=True)
                layer(x).sum().backward()
                layer.T(x).sum().backward()
    _wait(device)


def _fit(method: str) -> None:
    import numpy as np

    from swallowtail import fit_symmetric

    A = np.random.default_rng(0).standard_normal((16, 16))
    fit_symmetric(A @ A.T, method=method, progress=False)


def _adam(device: str) -> None:
    """Steps of an optimiser on a small network, past its first fit of a basis."""
    import torch

    from swallowtail.optim import GivensAdam

    model = torch.nn.Linear(256, 128).to(device)  # groups of 128, as most layers have
    optimizer = GivensAdam(model.parameters())
    for seed in range(12):
        x = torch.randn(8, 256, generator=torch.Generator().manual_seed(seed)).to(device)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    _wait(device)


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
