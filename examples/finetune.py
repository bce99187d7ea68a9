"""Move a language model to other text with few parameters: Givens rotations beside LoRA, OFT, BOFT and full training.

A byte-level transformer is trained on Python's library sources, then fine-tuned on Python's help texts, which are
English. Every method gets about as many trainable numbers. The first table gives all of them the same number of steps,
the second one the same time: as many steps as fit into it, by the time of a step. For that, methods take turns and the
shortest of their steps count, so that what else the machine does matters little.

python examples/finetune.py [--full] [--output demo-output]      (needs pip install 'swallowtail[peft]')
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from common import OURS, PLAIN, RIVAL, save
from language_model import (
    FULL,
    SMALL,
    LanguageModel,
    Size,
    Text,
    documentation,
    kept_for_backward,
    library_sources,
    loss,
    precision,
    train,
    train_from_scratch,
    validate,
)
from matplotlib.figure import Figure
from peft import BOFTConfig, LoraConfig, OFTConfig, get_peft_model
from torch import nn

from swallowtail.integrations.peft import GivensConfig

TARGETS = ["qkv", "out", "gate", "up", "down"]


@dataclasses.dataclass(frozen=True)
class Method:
    """A configuration of peft, or none to train everything, and its learning rate."""

    config: Any
    rate: float


# About 5 numbers per input channel each. The learning rates are common ones, not tuned.
METHODS = {
    "all parameters": Method(None, 1e-3),
    "LoRA, rank 2": Method(LoraConfig(target_modules=TARGETS, r=2, lora_alpha=4), 1e-2),
    "OFT, blocks of 8": Method(
        OFTConfig(target_modules=TARGETS, oft_block_size=8, use_cayley_neumann=False), 1e-2
    ),
    "BOFT, blocks of 4": Method(
        BOFTConfig(target_modules=TARGETS, boft_block_size=4, boft_n_butterfly_factor=1), 1e-2
    ),
    "Givens, 8 rounds": Method(GivensConfig(target_modules=TARGETS), 2e-2),
    "Givens, 8 rounds and scales": Method(GivensConfig(target_modules=TARGETS, scales=True), 2e-2),
}
YARDSTICK = "LoRA, rank 2"  # whose time the second table gives to all
TURNS, STEPS = 6, 2  # in which steps are timed, and how many of them in each


@dataclasses.dataclass
class Row:
    """What became of one method."""

    method: str
    parameters: int
    steps: int
    seconds: float  # of this run
    step: float  # milliseconds, measured in turns
    loss: float  # on validation bytes of the new text, nats per byte
    kept: float  # megabytes that a step keeps for its backward pass


def adapted(name: str, base: LanguageModel) -> nn.Module:
    """A copy of the model, with what the method learns."""
    config, model = METHODS[name].config, copy.deepcopy(base)
    if config is None:
        return model
    with warnings.catch_warnings():  # peft's BOFT looks for a compiler, and says that there is none
        warnings.simplefilter("ignore")
        return get_peft_model(model, copy.deepcopy(config))


def step_times(base: LanguageModel, text: Text, size: Size, device: str) -> dict[str, float]:
    """Milliseconds per step of every method."""
    models, best = {name: adapted(name, base) for name in METHODS}, dict[str, float]()
    for _ in range(TURNS):
        for name, model in models.items():
            rate = METHODS[name].rate
            _, seconds = train(model, text, size, device, steps=STEPS, rate=rate, title="timing")
            best[name] = min(best.get(name, seconds), seconds)
    return {name: 1e3 * seconds / STEPS for name, seconds in best.items()}


def run(name: str, base: LanguageModel, text: Text, size: Size, device: str, steps: int, step: float) -> Row:
    """Fine-tune a copy."""
    model = adapted(name, base)
    rows = next(text.batches(size, device))
    with precision(device):
        kept = kept_for_backward(model, lambda: loss(model, rows))
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    _, seconds = train(model, text, size, device, steps=steps, rate=METHODS[name].rate, title=name)
    return Row(name, learned, steps, seconds, step, validate(model, text, size, device), kept)


def show(title: str, rows: list[Row]) -> None:
    """A table."""
    print(
        f"\n{title}\n{'':30}{'learned':>10}{'steps':>7}{'seconds':>9}{'ms/step':>9}{'kept MB':>9}{'loss':>8}"
    )
    for row in rows:
        print(
            f"{row.method:30}{row.parameters:10d}{row.steps:7d}{row.seconds:9.1f}"
            f"{row.step:9.1f}{row.kept:9.1f}{row.loss:8.4f}"
        )


def draw(tables: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The loss against the numbers that are learned, at equal steps and at equal time."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    titles = {"same_steps": "the same number of steps", "same_time": f"the time of {YARDSTICK}"}
    for axis, (key, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        rows = [row for row in tables[key] if row["method"] != "all parameters"]
        for row in rows:
            colour = OURS if row["method"].startswith("Givens") else RIVAL
            axis.plot(row["parameters"], row["loss"], "o", color=colour, markersize=9)
            axis.annotate(
                row["method"], (row["parameters"], row["loss"]), xytext=(0, 9 if colour == OURS else -16),
                textcoords="offset points", ha="center", fontsize=9,
            )  # fmt: skip
        whole = next(row for row in tables[key] if row["method"] == "all parameters")
        axis.axhline(whole["loss"], color=PLAIN, linestyle=":", label=f"all {whole['parameters']:,} numbers")
        axis.set(title=title, xlabel="numbers that are learned")
        axis.margins(0.2)
        axis.legend(loc="lower left")
    figure.axes[0].set_ylabel("loss on the new text, nats per byte")
    save(figure, path)


def main() -> None:
    """Train, fine-tune in every way, print, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the large model, for a GPU")
    parser.add_argument("--train-steps", type=int, help="of the model itself")
    parser.add_argument("--steps", type=int, help="of fine-tuning")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    device = "cuda" if options.full and torch.cuda.is_available() else "cpu"
    size, text = FULL if options.full else SMALL, documentation()
    base = LanguageModel(size).to(device)
    first = options.train_steps or (900 if options.full else 150)
    train_from_scratch(base, library_sources(), size, device, first)
    before = validate(base, text, size, device)
    print(f"loss on the new text before fine-tuning: {before:.4f} nats per byte")
    steps = options.steps or (300 if options.full else 25)
    times = step_times(base, text, size, device)
    same_steps = [run(name, base, text, size, device, steps, times[name]) for name in METHODS]
    show("The same number of steps", same_steps)
    counts = {name: max(1, round(steps * times[YARDSTICK] / times[name])) for name in METHODS}
    same_time = [run(name, base, text, size, device, counts[name], times[name]) for name in METHODS]
    show("The same time", same_time)
    record = {"same_steps": same_steps, "same_time": same_time}
    tables = {title: [dataclasses.asdict(row) for row in rows] for title, rows in record.items()}
    path = options.output / "finetune.json"
    facts = {"command": shlex.join(["python", *sys.argv]), "device": device, "before": before}
    path.write_text(json.dumps({**facts, **tables}, indent=1) + "\n")
    print(f"\nwritten: {path}")
    draw(tables, options.output / "finetune.png")


if __name__ == "__main__":
    main()
