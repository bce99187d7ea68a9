"""A training step of fine-tuning methods on the same two Linears: python -m benchmarks.language_models [--device cuda]

Needs peft. Methods take turns, and the shortest step of each counts. Writes benchmarks/results/peft-<device>.csv.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from peft import BOFTConfig, LoraConfig, OFTConfig, get_peft_model
from torch import nn

from benchmarks.common.rows import Row, write_rows
from examples.language_model import kept_for_backward
from swallowtail.integrations.peft import GivensConfig

TARGETS = ["0", "2"]
METHODS: dict[str, Callable[[], Any]] = {
    "Givens, 8 rounds": lambda: GivensConfig(target_modules=TARGETS),
    "Givens, butterfly": lambda: GivensConfig(target_modules=TARGETS, wiring="butterfly"),
    "BOFT, blocks of 4, 1 factor": lambda: BOFTConfig(target_modules=TARGETS, boft_block_size=4),
    "BOFT, blocks of 8, 2 factors": lambda: BOFTConfig(
        target_modules=TARGETS, boft_block_size=8, boft_n_butterfly_factor=2
    ),
    "OFT, blocks of 8": lambda: OFTConfig(target_modules=TARGETS, oft_block_size=8),
    "LoRA, rank 2": lambda: LoraConfig(target_modules=TARGETS, r=2),
}


def measure(n: int, rows: int, device: str, repeats: int) -> list[Row]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(rows, n, device=device, dtype=dtype)
    models, steps, times = {}, {}, dict[str, list[float]]()
    for name, config in METHODS.items():
        torch.manual_seed(0)
        base = nn.Sequential(nn.Linear(n, n, bias=False), nn.GELU(), nn.Linear(n, n, bias=False))
        with warnings.catch_warnings():  # BOFT looks for a compiler, and says that there is none
            warnings.simplefilter("ignore")
            model = get_peft_model(base.to(device, dtype), config(), autocast_adapter_dtype=False)
        learned = [p for p in model.parameters() if p.requires_grad]
        optimise = torch.optim.Adam(learned, lr=1e-3)

        def step(model: nn.Module = model, optimise: torch.optim.Optimizer = optimise) -> None:
            optimise.zero_grad()
            model(x).float().square().mean().backward()
            optimise.step()
            if device == "cuda":
                torch.cuda.synchronize()

        models[name], steps[name], times[name] = (model, learned), step, []
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    return [
        {
            "n": n,
            "rows": rows,
            "dtype": str(dtype).removeprefix("torch."),
            "method": name,
            "learned": sum(p.numel() for p in learned),
            "step_ms": 1e3 * min(times[name]),
            "kept_MB": kept_for_backward(model, partial(model, x)),
        }
        for name, (model, learned) in models.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [row for n in options.sizes for row in measure(n, options.rows, options.device, options.repeats)]
    for row in found:
        print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), sep="\t")
    print(
        "rows:",
        write_rows(f"peft-{options.device}", found, "python -m benchmarks.language_models", options.device),
    )


if __name__ == "__main__":
    main()
