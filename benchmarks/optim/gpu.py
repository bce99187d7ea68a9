"""What a step costs on a GPU, at width 4096 and for a transformer: GivensAdam, SOAP and Adam, refreshes included.

    python -m benchmarks.optim.gpu [--width 4096] [--rounds 7] [--quick] [--only transformer] [--profile]

Every measurement is twenty steps, so that all methods refresh their bases twice in it; methods take turns. SOAP is
measured with the authors' QR refresh and with exact eigenvectors, in float32 and with TF32 products.
``--quick`` measures SOAP in its fastest form only, and compares no update with the reference. Committed rows of what is
not measured stay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.language.training import SIZES
from benchmarks.optim.rivals import SOAP
from examples.language_model import LanguageModel
from swallowtail.kernels import use_backend
from swallowtail.optim import GivensAdam

STEPS = 20  # a measurement
DEPTHS = (1, 2)
Make = Callable[[Any], torch.optim.Optimizer]
METHODS: dict[str, tuple[Make, str]] = {
    "Adam, foreach": (lambda p: torch.optim.Adam(p, 1e-3, foreach=True), "highest"),
    "Adam, fused": (lambda p: torch.optim.Adam(p, 1e-3, fused=True), "highest"),
    "GivensAdam": (lambda p: GivensAdam(p, 1e-3), "highest"),
    "GivensAdam, butterflies": (lambda p: GivensAdam(p, 1e-3, wiring="butterfly", refresh=10), "highest"),
    "GivensAdam, butterflies, depth 1": (
        lambda p: GivensAdam(p, 1e-3, wiring="butterfly", depth=1, refresh=10),
        "highest",
    ),
    "SOAP, QR, TF32": (lambda p: SOAP(p, 1e-3, basis="qr"), "high"),
    "SOAP, QR": (lambda p: SOAP(p, 1e-3, basis="qr"), "highest"),
    "SOAP, exact eigenvectors, TF32": (lambda p: SOAP(p, 1e-3, basis="eigh"), "high"),
}
SLOW = "SOAP, exact eigenvectors, TF32"  # one round of ten steps, one refresh, is enough
QUICK = tuple(name for name in METHODS if name not in (SLOW, "SOAP, QR"))
TRANSFORMER = "transformer, 21 M"


def parameters(shapes: list[tuple[int, ...]], device: str) -> list[torch.nn.Parameter]:
    generator = torch.Generator(device).manual_seed(0)
    params = [
        torch.nn.Parameter(torch.randn(s, generator=generator, device=device) / s[-1] ** 0.5) for s in shapes
    ]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, device=device)
    return params


def compile_kernels(case: tuple[tuple[int, ...], int]) -> None:
    """Two steps of one shape and depth in a process of its own: Triton keeps what it compiled on disk."""
    shape, depth = case
    for options in ({"wiring": "butterfly", "depth": depth}, {}):
        optimizer = GivensAdam(parameters([shape], "cuda"), 1e-3, refresh=2, **options)
        for _ in range(4):
            optimizer.step()
    torch.cuda.synchronize()


def milliseconds(run: Callable[[], Any], device: str) -> float:
    if device != "cuda":
        begin = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begin)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def state_mib(optimizer: torch.optim.Optimizer) -> float:
    def size(value: Any) -> int:
        if isinstance(value, (list, tuple)):
            return sum(map(size, value))
        return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0

    return sum(size(v) for state in optimizer.state.values() for v in state.values()) / 2**20


def measure(
    model: str, shapes: list[tuple[int, ...]], device: str, rounds: int, names: tuple[str, ...]
) -> list[Row]:
    runs: dict[str, tuple[torch.optim.Optimizer, str]] = {}
    rows = []
    for name in names:
        make, precision = METHODS[name]
        if (device != "cuda" and "fused" in name) or (name == SLOW and len(shapes) > 1):
            continue
        optimizer = make(parameters(shapes, device))
        torch.set_float32_matmul_precision(precision)
        first = milliseconds(optimizer.step, device)
        if name != SLOW:
            for _ in range(29):
                optimizer.step()  # up to a refresh, so that every measurement has as many; ours are recorded by then
        runs[name] = (optimizer, precision)
        rows.append(
            {
                "part": "step",
                "model": model,
                "method": name,
                "first_ms": first,
                "state_mib": state_mib(optimizer),
            }
        )
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(rounds):
        for name, (optimizer, precision) in runs.items():
            if name == SLOW and round_:
                continue
            torch.set_float32_matmul_precision(precision)
            steps = 10 if name == SLOW else STEPS
            times[name].append(
                milliseconds(lambda o=optimizer, k=steps: [o.step() for _ in range(k)], device) / steps
            )
    for row in rows:
        low, mid, high = np.quantile(times[row["method"]], (0.2, 0.5, 0.8))
        row.update(ms=mid, ms_20=low, ms_80=high, rounds=len(times[row["method"]]))
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return rows


def agreement(shape: tuple[int, int], device: str) -> float:
    """Largest difference of a step's update between this device's kernels and the reference's in float64, ÷ lr.

    Both start from the same state after five steps; the bases are not fitted again in between.
    """
    (p,) = parameters([shape], device)
    optimizer = GivensAdam([p], 1e-3, wiring="butterfly", refresh=5)
    for _ in range(6):
        optimizer.step()
    twin = torch.nn.Parameter(p.detach().double())
    other = GivensAdam([twin], 1e-3, wiring="butterfly", refresh=5)
    saved = optimizer.state_dict()
    for name, value in saved["state"][0].items():
        if value.is_floating_point() and value.ndim:
            saved["state"][0][name] = value.double()
    other.load_state_dict(saved)
    p.grad = torch.randn(shape, device=device)
    twin.grad = p.grad.double()
    optimizer.step()
    with use_backend("reference"):
        other.step()
    return float((p.detach().double() - twin.detach()).abs().max()) / 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="leave out the slow forms of SOAP")
    parser.add_argument("--only", default="", help="models whose names begin so")
    parser.add_argument("--profile", action="store_true", help="print where a step's time goes, and end")
    options = parser.parse_args()
    h, device = options.width, options.device
    models = {
        f"one layer {h} × {h}": [(h, h)],
        f"MLP 784-{h}-{h}-10": [(h, 784), (h,), (h, h), (h,), (10, h), (10,)],
    }
    with torch.device("meta"):
        models[TRANSFORMER] = [tuple(p.shape) for p in LanguageModel(SIZES["20 M"]).parameters()]
    if options.profile:
        profile(models[f"MLP 784-{h}-{h}-10"], device)
        return
    models = {name: layers for name, layers in models.items() if name.startswith(options.only)}
    shapes = () if list(models) == [TRANSFORMER] else ((h, h), (h, 784), (10, h))
    if device == "cuda" and shapes:
        begin = time.perf_counter()
        cases = [(shape, depth) for shape in shapes for depth in DEPTHS]
        with get_context("spawn").Pool(len(cases)) as pool:
            pool.map(compile_kernels, cases)
        print(f"compiled in {time.perf_counter() - begin:.0f} s", flush=True)
    for shape in () if options.quick else shapes:
        print(
            shape, "largest difference to the float64 reference ÷ lr:", agreement(shape, device), flush=True
        )
    rows: list[Row] = []
    names, command = tuple(METHODS), "python -m benchmarks.optim.gpu"
    if options.quick:
        names, command = QUICK, f"{command} --quick"
    command += f" --only {options.only}" if options.only else ""
    earlier = read_rows("optim-cuda")
    for name, layers in models.items():
        chosen = tuple(m for m in names if name != TRANSFORMER or (m in QUICK and "butterflies" not in m))
        rows += measure(name, layers, device, options.rounds, chosen)
        if device == "cuda":  # after each model: what is measured is kept if the time runs out
            new = {(row["model"], row["method"]) for row in rows}
            kept = [row for row in earlier if (row["model"], row["method"]) not in new]
            print("rows:", write_rows("optim-cuda", rows + kept, command, "cuda"), flush=True)
    for name in models:
        ms = {row["method"]: row["ms"] for row in rows if row["model"] == name}
        state = {row["method"]: row["state_mib"] for row in rows if row["model"] == name}
        for rival in ms:
            print(f"{name}: GivensAdam ÷ {rival}: time {ms['GivensAdam'] / ms[rival]:.3f}, "
                  f"state {state['GivensAdam'] / state[rival]:.3f}")  # fmt: skip


def profile(shapes: list[tuple[int, ...]], device: str) -> None:
    """Time by operation over twenty steps of GivensAdam."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    optimizer = GivensAdam(parameters(shapes, device), 1e-3)
    for _ in range(30):
        optimizer.step()
    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(20):
            optimizer.step()
    key = "cuda_time_total" if device == "cuda" else "cpu_time_total"
    print(seen.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    main()
