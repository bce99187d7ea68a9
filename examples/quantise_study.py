"""What `quantise.py` compares: methods, settings of bits, and the study that tries every method at every setting."""

from __future__ import annotations

import dataclasses
import math
import time

import torch
from language_model import LanguageModel, Size, Text, validate
from quantise_learning import learn
from quantise_record import Record, Row
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
from quantised_model import Method, Quantised, compensate, quantised
from time_limit import Limit
from torch import nn
from tqdm import tqdm

SETTINGS = {"W4A4": Bits(4, 4), "W2": Bits(2, 16), "W3": Bits(3, 16), "W4": Bits(4, 16), "W4A8": Bits(4, 8)}
HARD = ("W4A4", "W2")
METHODS = {  # in the order in which they are tried
    "round to nearest": Method(lambda of, bits: nn.Identity()),
    "Hadamard": Method(lambda of, bits: hadamard(of.n)),
    "random Hadamard": Method(lambda of, bits: hadamard(of.n, random_signs(of.n, 0))),
    "Hadamard, ratios learned": Method(lambda of, bits: hadamard(of.n), ratios=True),
    "grouped and scales, learned": Method(lambda of, bits: hadamard(of.n, scales(of, bits), layers=8), 0.02),
    "butterfly, learned": Method(lambda of, bits: butterfly(of.n), 0.02),
    "grouped, learned": Method(lambda of, bits: hadamard(of.n, layers=8), 0.02),
    "scales, then Hadamard": Method(lambda of, bits: hadamard(of.n, scales(of, bits))),
    "fitted pairs, scales, Hadamard": Method(Fitted),
    "fitted pairs and scales, learned": Method(Fitted, 0.02),
    "16 rounds and scales, learned": Method(
        lambda of, bits: hadamard(of.n, scales(of, bits), layers=16), 0.02
    ),
    "dense map from the data": Method(DenseMap),
    "dense map, learned": Method(DenseMap, 0.001, recorded=False),
    "dense rotation, learned": Method(lambda of, bits: Dense(of), 0.003, recorded=False),
}
# The best of these is what learning must beat.
BASELINES = ("Hadamard", "random Hadamard", "Hadamard, ratios learned")
SEEDS = 5  # random Hadamards, for the spread


@dataclasses.dataclass
class Study:
    """The model, its text, and what is measured with it."""

    model: LanguageModel
    text: Text
    size: Size
    device: str
    batches: int

    def __post_init__(self) -> None:
        self.rows = next(self.text.batches(self.size, self.device, seed=5))[:, :-1]
        self.known = moments(self.model, self.text.batches(self.size, self.device, seed=6), 8)
        self.plain = self.loss(self.model)
        # Rows per step of learning.
        self.small = dataclasses.replace(self.size, batch=max(4, self.size.batch // 4))

    def loss(self, model: nn.Module) -> float:
        """On the validation bytes."""
        return validate(model, self.text, self.size, self.device, self.batches)

    def row(self, setting: str, name: str, method: Method, steps: int) -> tuple[Row, nn.Module]:
        """Quantise, learn for so many steps if there is anything to learn, then measure."""
        begin, recorded = time.perf_counter(), False
        student = quantised(self.model, method, SETTINGS[setting], self.known, self.rows)
        if method.learns:
            recorded = learn(
                student, self.model, self.text, self.small, self.device, steps, method.rate, method.recorded
            )
        row = self.measured(setting, name, student, begin)
        return dataclasses.replace(row, steps=steps * method.learns, recorded=recorded), student

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
                x = torch.ones(tokens, layer.linear.in_features, device=self.device, dtype=dtype)
                times = []
                for _ in range(16):
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
    left = min((row.loss for row in rows if row.base in BASELINES), default=math.nan)
    print(f"\n{'':6}{'':42}{'loss +':>9}{'recovered':>11}{'seconds':>9}{'learned':>10}{'µs/token':>10}")
    for row in rows:
        print(
            f"{row.setting:6}{row.method:42}{row.loss:9.4f}{100 * (1 - row.loss / left):9.0f} %{row.seconds:9.1f}"
            f"{row.parameters:10d}{row.extra:10.2f}"
        )


def compare(
    study: Study, settings: list[str], names: list[str], steps: list[int], record: Record, limit: Limit
) -> None:
    """The spread of Hadamard matrices, every method at every setting, then compensation: the hard settings first.

    Learned methods run once for each number of steps. The file is written after each row.
    """
    rows: dict[str, dict[str, Row]] = {setting: {} for setting in settings}
    students: dict[str, dict[str, nn.Module]] = {setting: {} for setting in settings}

    def keep(row: Row, student: nn.Module) -> None:
        rows[row.setting][row.method], students[row.setting][row.method] = row, student
        tqdm.write(f"{row.setting:6}{row.method:50}{row.loss:9.4f}{row.seconds:9.1f} s")
        record.add(row)

    hard, easy = ([s for s in settings if (s in HARD) == wanted] for wanted in (True, False))
    for part in (hard, easy):
        for setting in part:
            with limit.hold(f"the spread at {setting}"):
                record.content["spread"][setting] = left = spread(study, setting)
                times = f"{left['mean'] / left['deviation']:.1f} times the spread over {SEEDS} seeds"
                print(
                    f"{setting}: random Hadamard leaves {left['mean']:.4f} ± {left['deviation']:.4f}, {times}"
                )
                record.write()
        for number in steps:
            again = number != steps[0]
            tried = [name for name in names if METHODS[name].learns or not again]
            for name in tqdm(tried, desc="methods", leave=False, mininterval=1):
                for setting in part:
                    title = f"{name}, {number} steps" if again else name
                    with limit.hold(f"{title} at {setting}"):
                        keep(*study.row(setting, title, METHODS[name], number))
    for setting in settings:
        for name in worth_compensating(rows[setting]):
            with limit.hold(f"{name} at {setting}, compensated"):
                begin, student, before = time.perf_counter(), students[setting][name], rows[setting][name]
                compensate(student, study.text, study.small, study.device)
                found = study.measured(setting, f"{name}, compensated", student, begin)
                seconds = found.seconds + before.seconds
                keep(dataclasses.replace(found, seconds=seconds, steps=before.steps), student)
        if rows[setting]:
            show(list(rows[setting].values()))
    print(f"\nwritten: {record.path}", flush=True)
    try:
        from quantise_figure import draw
    except ImportError as missing:  # the machine of a GPU may have no matplotlib
        print(f"no figure: {missing}")
        return
    if "round to nearest" not in students[settings[0]]:
        return  # the figure shows the outliers that this one meets
    sample = next(study.text.batches(study.size, study.device, seed=3, split="validation"))[:, :-1]
    picture = record.path.with_suffix(".png")
    draw(students[settings[0]], record.all_rows(), sample, picture)
    print(f"written: {picture}")


def worth_compensating(rows: dict[str, Row]) -> list[str]:
    """The two best methods, and the Hadamard matrix."""
    best = sorted(rows.values(), key=lambda row: row.loss)[:2]
    return list(
        dict.fromkeys([*(row.method for row in best), *(name for name in rows if name == "Hadamard")])
    )
