"""Quantise a language model with rotations, learned and fixed, beside plain rounding.

A byte-level transformer is trained on the spot. Each Linear gets a transform T of its inputs: T x meets W T⁻¹, and both
are rounded to few bits. Fixed transforms are compared with learned ones. Those minimise the Kullback-Leibler divergence
from the unquantised model; their gradient passes straight through the rounding. Every method cuts its ranges by ratios
chosen from the data, one for the weights and one for the inputs of a Linear; learned methods go on learning them.

python examples/quantise.py [--full] [--settings W4A4 W2] [--seconds 120] [--text english] [--seed 1]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
from language_model import (
    FULL,
    SMALL,
    LanguageModel,
    Size,
    Text,
    documentation,
    library_sources,
    train_from_scratch,
    validate,
)
from quantise_figure import draw
from quantise_transforms import (
    Bits,
    Dense,
    DenseMap,
    Fitted,
    butterfly,
    hadamard,
    moments,
    random_signs,
    scales,
)
from quantised_model import Method, Quantised, compensate, learn, quantised, with_outliers
from time_limit import Limit
from torch import nn
from tqdm import tqdm

SETTINGS = {"W4A4": Bits(4, 4), "W2": Bits(2, 16), "W3": Bits(3, 16), "W4": Bits(4, 16), "W4A8": Bits(4, 8)}
HARD = ("W4A4", "W2")
TEXTS = {"python": library_sources, "english": documentation}
METHODS = {
    "round to nearest": Method(lambda of, bits: nn.Identity()),
    "Hadamard": Method(lambda of, bits: hadamard(of.n)),
    "random Hadamard": Method(lambda of, bits: hadamard(of.n, random_signs(of.n, 0))),
    "Hadamard, ratios learned": Method(lambda of, bits: hadamard(of.n), ratios=True),
    "scales, then Hadamard": Method(lambda of, bits: hadamard(of.n, scales(of, bits))),
    "fitted pairs, scales, Hadamard": Method(Fitted),
    "dense map from the data": Method(DenseMap),
    "dense rotation, learned": Method(lambda of, bits: Dense(of.n), 0.003),
    "butterfly, learned": Method(lambda of, bits: butterfly(of.n), 0.02),
    "grouped, learned": Method(lambda of, bits: hadamard(of.n, layers=8), 0.02),
    "grouped and scales, learned": Method(lambda of, bits: hadamard(of.n, scales(of, bits), layers=8), 0.02),
    "16 rounds and scales, learned": Method(
        lambda of, bits: hadamard(of.n, scales(of, bits), layers=16), 0.02
    ),
    "fitted pairs and scales, learned": Method(Fitted, 0.02),
    "dense map, learned": Method(DenseMap, 0.001),
}
BASELINES = (
    "Hadamard",
    "random Hadamard",
    "Hadamard, ratios learned",
)  # the best of them is what learning must beat
SLOW = "dense rotation, learned"  # with --full only in the hard settings
SEEDS = 5  # random Hadamards, for the spread


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
        self.rows = next(self.text.batches(self.size, self.device, seed=5))[:, :-1]
        self.known = moments(self.model, self.text.batches(self.size, self.device, seed=6), 8)
        self.plain = self.loss(self.model)
        self.small = dataclasses.replace(
            self.size, batch=max(4, self.size.batch // 4)
        )  # rows per step of learning

    def loss(self, model: nn.Module) -> float:
        """On the validation bytes."""
        return validate(model, self.text, self.size, self.device, self.batches)

    def row(self, setting: str, name: str, method: Method) -> tuple[Row, nn.Module]:
        """Quantise, then measure."""
        begin = time.perf_counter()
        student = quantised(self.model, method, SETTINGS[setting], self.known, self.rows)
        if method.learns:
            learn(student, self.model, self.text, self.small, self.device, self.steps, method.rate)
        return self.measured(setting, name, student, begin), student

    def measured(self, setting: str, name: str, student: nn.Module, begin: float) -> Row:
        """What came out of it, and what it cost."""
        self.wait()
        seconds = time.perf_counter() - begin
        learned = sum(p.numel() for p in student.parameters() if p.requires_grad)
        loss = self.loss(student) - self.plain
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


def spread(study: Study, setting: str) -> dict[str, float]:
    """Mean and standard deviation of what random Hadamards leave, over seeds of their signs."""
    losses = []
    for seed in range(SEEDS):
        method = Method(lambda of, bits, seed=seed: hadamard(of.n, random_signs(of.n, seed)))
        losses.append(study.loss(quantised(study.model, method, SETTINGS[setting], study.known, study.rows)))
    found = torch.tensor(losses) - study.plain
    return {"mean": float(found.mean()), "deviation": float(found.std()), "seeds": SEEDS}


def show(rows: list[Row]) -> None:
    """A table of one setting, with the share of what the best Hadamard leaves that each method recovers."""
    left = min((row.loss for row in rows if row.method in BASELINES), default=math.nan)
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
    parser.add_argument(
        "--text", choices=TEXTS, default="python", help="that the model learns and is tried on"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the model and its training")
    parser.add_argument(
        "--model", type=Path, help="a file: the trained model is kept there, or read if it exists"
    )
    parser.add_argument("--train-steps", type=int, help="of the model itself")
    parser.add_argument("--adam", action="store_true", help="train the model with AdamW rather than Muon")
    parser.add_argument("--steps", type=int, help="of learning, per method and setting")
    learned = [name for name, method in METHODS.items() if method.rate]
    parser.add_argument(
        "--learned", nargs="+", choices=learned, default=learned, help="learned methods to try, in order"
    )
    parser.add_argument(
        "--outliers", action="store_true", help="put outlier channels in, as large models have them"
    )
    parser.add_argument("--seconds", type=float, help="for everything; what takes longer is left out")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    return parser.parse_args()


def trained(options: argparse.Namespace, text: Text, size: Size, device: str, steps: int) -> LanguageModel:
    """The model, from its file if there is one."""
    model = LanguageModel(size, options.seed).to(device)
    if options.model is not None and options.model.exists():
        model.load_state_dict(torch.load(options.model, map_location=device))
        return model
    seconds = train_from_scratch(model, text, size, device, steps, options.adam, options.seed)
    numbers = sum(p.numel() for p in model.parameters())
    print(f"{numbers / 1e6:.1f} million parameters, trained for {steps} steps in {seconds:.0f} s on {device}")
    if options.model is not None:
        torch.save(model.state_dict(), options.model)
    return model


def main() -> None:
    """Train, quantise in every way, print, draw."""
    options = arguments()
    limit = Limit(options.seconds)
    options.output.mkdir(parents=True, exist_ok=True)
    device = "cuda" if options.full and torch.cuda.is_available() else "cpu"
    size, text = FULL if options.full else SMALL, TEXTS[options.text]()
    train_steps = options.train_steps or (900 if options.full else 150)
    model = trained(options, text, size, device, train_steps)
    if options.outliers:
        print("outlier channels are put in as large models show them; the function stays the same")
        model = with_outliers(model)
    study = Study(model, text, size, device, options.steps or (80 if options.full else 15), 16)
    print(f"validation loss without quantisation: {study.plain:.4f} nats per byte", flush=True)
    settings = options.settings or (list(SETTINGS) if options.full else list(HARD))
    compare(study, settings, options, limit)


def compare(study: Study, settings: list[str], options: argparse.Namespace, limit: Limit) -> None:
    """Every method at every setting, then compensation. The file is written after each of them."""
    record: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]), "device": study.device, "loss": study.plain, "spread": {},
    }  # fmt: skip
    rows: dict[str, dict[str, Row]] = {setting: {} for setting in settings}
    students: dict[str, dict[str, nn.Module]] = {setting: {} for setting in settings}

    def write() -> None:
        record["rows"] = [dataclasses.asdict(row) for each in rows.values() for row in each.values()]
        (options.output / "quantise.json").write_text(json.dumps(record, indent=1) + "\n")

    order = [name for name, method in METHODS.items() if not method.rate] + options.learned
    for name in tqdm(
        sorted(order, key=lambda name: name == SLOW), desc="methods", leave=False, mininterval=1
    ):
        for setting in settings:
            if name == SLOW and options.full and setting not in HARD:
                continue
            with limit.hold(f"{name} at {setting}"):
                found, student = study.row(setting, name, METHODS[name])
                rows[setting][name], students[setting][name] = found, student
                write()
    for setting in settings:
        with limit.hold(f"the spread at {setting}"):
            record["spread"][setting] = left = spread(study, setting)
            times = f"{left['mean'] / left['deviation']:.1f} times the spread over {SEEDS} seeds"
            print(f"{setting}: random Hadamard leaves {left['mean']:.4f} ± {left['deviation']:.4f}, {times}")
        with limit.hold(f"compensation at {setting}"):
            best = sorted(rows[setting].values(), key=lambda row: row.loss)[:2]
            for row in [*best, *(row for row in rows[setting].values() if row.method == "Hadamard")]:
                name, begin = f"{row.method}, compensated", time.perf_counter() - row.seconds
                if name not in rows[setting]:
                    compensate(students[setting][row.method], study.text, study.small, study.device)
                    student = students[setting][row.method]
                    rows[setting][name] = study.measured(setting, name, student, begin)
        write()
        show(list(rows[setting].values()))
    sample = next(study.text.batches(study.size, study.device, seed=3, split="validation"))[:, :-1]
    draw(students[settings[0]], record["rows"], sample, options.output / "quantise.png")
    print(f"\nwritten: {options.output / 'quantise.json'}, {options.output / 'quantise.png'}")


if __name__ == "__main__":
    main()
