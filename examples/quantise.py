"""Quantise a language model with rotations, learned and fixed, beside plain rounding.

A byte-level transformer is trained on the spot. Each Linear gets a transform T of its inputs: T x meets W T⁻¹, and both
are rounded to few bits. Fixed transforms are compared with learned ones. Those minimise the Kullback-Leibler divergence
from the unquantised model; their gradient passes straight through the rounding.

python examples/quantise.py [--full] [--settings W4A4 W2] [--output demo-output]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import torch
from language_model import (
    FULL,
    SMALL,
    LanguageModel,
    Size,
    Text,
    library_sources,
    train_from_scratch,
    validate,
)
from quantise_figure import draw
from quantised_model import (
    Bits,
    Dense,
    Method,
    Quantised,
    balances,
    butterfly,
    compensate,
    hadamard,
    learn,
    quantised,
    random_signs,
    with_outliers,
)
from torch import nn
from tqdm import tqdm

SETTINGS = {"W4": Bits(4, 16), "W4A8": Bits(4, 8), "W4A4": Bits(4, 4), "W3": Bits(3, 16), "W2": Bits(2, 16)}
HARD = ("W4A4", "W2")
METHODS = {
    "round to nearest": Method(lambda n, scales: nn.Identity()),
    "Hadamard": Method(lambda n, scales: hadamard(n)),
    "random Hadamard": Method(lambda n, scales: hadamard(n, random_signs(n, 0))),
    "scales, then Hadamard": Method(lambda n, scales: hadamard(n, scales)),
    "dense, learned": Method(lambda n, scales: Dense(n), 0.003),
    "butterfly, learned": Method(lambda n, scales: butterfly(n), 0.02),
    "grouped, learned": Method(lambda n, scales: hadamard(n, layers=8), 0.02),
    "grouped and scales, learned": Method(lambda n, scales: hadamard(n, scales, layers=8), 0.02),
}
SLOW = "dense, learned"  # with --full only in the hard settings
SEEDS = 3  # random Hadamards, for the spread


@dataclasses.dataclass
class Row:
    """One method at one setting."""

    setting: str
    method: str
    loss: float  # above that of the unquantised model, in nats per byte
    seconds: float  # to quantise
    parameters: int  # that are learned
    extra: float  # microseconds per token that the transforms take


@dataclasses.dataclass
class Study:
    """The model, its text, and how long to learn."""

    model: LanguageModel
    text: Text
    size: Size
    device: str
    steps: int
    batches: int

    def __post_init__(self) -> None:
        rows = next(self.text.batches(self.size, self.device, seed=5))
        self.scales = balances(self.model, rows[:, :-1])
        self.small = dataclasses.replace(
            self.size, batch=max(4, self.size.batch // 4)
        )  # rows per step of learning

    def loss(self, model: nn.Module) -> float:
        """On the validation bytes."""
        return validate(model, self.text, self.size, self.device, self.batches)

    def row(self, setting: str, name: str, method: Method) -> tuple[Row, nn.Module]:
        """Quantise, then measure."""
        begin = time.perf_counter()
        student = quantised(self.model, method, SETTINGS[setting], self.scales)
        if method.rate:
            learn(student, self.model, self.text, self.small, self.device, self.steps, method.rate)
        return self.measured(setting, name, student, begin), student

    def measured(self, setting: str, name: str, student: nn.Module, begin: float) -> Row:
        """What came out of it, and what it cost."""
        self.wait()
        seconds = time.perf_counter() - begin
        learned = sum(p.numel() for p in student.parameters() if p.requires_grad)
        loss = self.loss(student) - self.loss(self.model)
        return Row(setting, name, loss, seconds, learned, self.extra(student))

    @torch.no_grad()
    def extra(self, student: nn.Module) -> float:
        """The time of all transforms of a forward pass, in microseconds per token."""
        total, tokens = 0.0, self.size.batch * self.size.context
        for layer in student.modules():
            if isinstance(layer, Quantised):
                dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
                x = torch.randn(tokens, layer.linear.in_features, device=self.device, dtype=dtype)
                times = []
                for _ in range(4):
                    self.wait()
                    begin = time.perf_counter()
                    layer.transform(x)
                    self.wait()
                    times.append(time.perf_counter() - begin)
                total += min(times)
        return 1e6 * total / tokens

    def wait(self) -> None:
        """For the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def spread(study: Study, setting: str) -> tuple[float, float]:
    """Mean and standard deviation of what random Hadamards leave, over seeds of their signs."""
    losses = []
    for seed in range(SEEDS):
        method = Method(lambda n, scales, seed=seed: hadamard(n, random_signs(n, seed)))
        losses.append(study.loss(quantised(study.model, method, SETTINGS[setting], study.scales)))
    found = torch.tensor(losses) - study.loss(study.model)
    return float(found.mean()), float(found.std())


def show(rows: list[Row]) -> None:
    """A table of one setting, with the share of what the better Hadamard leaves that each method recovers."""
    left = min(row.loss for row in rows if row.method in ("Hadamard", "random Hadamard"))
    print(f"\n{'':6}{'':42}{'loss +':>9}{'recovered':>11}{'seconds':>9}{'learned':>10}{'µs/token':>10}")
    for row in rows:
        print(
            f"{row.setting:6}{row.method:42}{row.loss:9.4f}{100 * (1 - row.loss / left):9.0f} %{row.seconds:9.1f}"
            f"{row.parameters:10d}{row.extra:10.2f}"
        )


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the large model, for a GPU")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, help="all of them with --full, else W4A4 and W2"
    )
    parser.add_argument("--train-steps", type=int, help="of the model itself")
    parser.add_argument("--adam", action="store_true", help="train the model with AdamW rather than Muon")
    parser.add_argument("--steps", type=int, help="of learning, per method and setting")
    parser.add_argument(
        "--outliers", action="store_true", help="put outlier channels in, as large models have them"
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    return parser.parse_args()


def main() -> None:
    """Train, quantise in every way, print, draw."""
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    device = "cuda" if options.full and torch.cuda.is_available() else "cpu"
    size, text = FULL if options.full else SMALL, library_sources()
    model = LanguageModel(size).to(device)
    steps = options.train_steps or (900 if options.full else 150)
    seconds = train_from_scratch(model, size, device, steps, options.adam)
    numbers = sum(p.numel() for p in model.parameters())
    print(f"{numbers / 1e6:.1f} million parameters, trained for {steps} steps in {seconds:.0f} s on {device}")
    if options.outliers:
        print("outlier channels are put in as large models show them; the function stays the same")
        model = with_outliers(model)
    study = Study(model, text, size, device, options.steps or (80 if options.full else 15), 4)
    print(f"validation loss without quantisation: {study.loss(model):.4f} nats per byte", flush=True)
    rows, kept = list[Row](), dict[str, nn.Module]()
    settings = options.settings or (list(SETTINGS) if options.full else list(HARD))
    for setting in settings:
        mean, deviation = spread(study, setting)
        times = f"{mean / deviation:.1f} times the spread over {SEEDS} seeds"
        print(f"\n{setting}: random Hadamard leaves {mean:.4f} ± {deviation:.4f}, {times}")
        found, students = dict[str, Row](), dict[str, nn.Module]()
        for name, method in tqdm(METHODS.items(), desc=setting, leave=False, mininterval=1):
            if name != SLOW or not options.full or setting in HARD:
                found[name], students[name] = study.row(setting, name, method)
        kept = kept or dict(students)
        for row in sorted(found.values(), key=lambda row: row.loss)[:2]:
            name, begin = f"{row.method}, compensated", time.perf_counter() - row.seconds
            compensate(students[row.method], text, study.small, device)
            found[name] = study.measured(setting, name, students[row.method], begin)
        rows += found.values()
        show(list(found.values()))
        table = [dataclasses.asdict(row) for row in rows]
        record = {
            "device": device,
            "train_steps": steps,
            "adam": options.adam,
            "outliers": options.outliers,
            "rows": table,
        }
        (options.output / "quantise.json").write_text(json.dumps(record, indent=1) + "\n")
    sample = next(text.batches(size, device, seed=3, split="validation"))[:, :-1]
    draw(kept, table, sample, options.output / "quantise.png")
    print(f"\nwritten: {options.output / 'quantise.json'}, {options.output / 'quantise.png'}")


if __name__ == "__main__":
    main()
