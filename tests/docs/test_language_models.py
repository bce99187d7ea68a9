"""The studies of language models, at the size of a laptop."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.extras
ROOT = Path(__file__).parents[2]


def run(name, output, *options):
    command = [sys.executable, str(ROOT / "examples" / name), "--output", str(output), *options]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((output / name).with_suffix(".json").read_text(encoding="utf8"))


def test_quantise(tmp_path):
    record = run("quantise.py", tmp_path)
    assert (tmp_path / "quantise.png").stat().st_size > 20_000
    rows = {(row["setting"], row["method"]): row for row in record["rows"]}
    losses = {method: row["loss"] for (setting, method), row in rows.items() if setting == "W2"}
    hadamards = ("Hadamard", "random Hadamard", "Hadamard, ratios learned")
    left = min(losses[method] for method in hadamards)
    learned = [
        loss for method, loss in losses.items() if method.endswith("learned") and method not in hadamards
    ]
    assert len(learned) == 7
    assert record["spread"]["W2"]["mean"] > 3 * record["spread"]["W2"]["deviation"] > 0
    assert 0 < min(learned) < 0.9 * left
    assert losses["Hadamard, compensated"] < losses["Hadamard"]
    assert rows["W4A4", "fitted pairs, scales, Hadamard"]["loss"] < 0.9 * rows["W4A4", "Hadamard"]["loss"]
    assert {setting for setting, _ in rows} == {"W4A4", "W2"}


def test_quantise_keeps_rows_of_the_same_configuration(tmp_path):
    chosen, few = ["--settings", "W2", "--methods"], ["--train-steps", "10", "--steps", "2"]
    first = run("quantise.py", tmp_path / "a", *few, *chosen, "Hadamard", "grouped, learned")
    earlier = ["--earlier", str(tmp_path / "a" / "quantise.json")]
    second = run("quantise.py", tmp_path / "b", *few, "3", *chosen, "Hadamard, ratios learned", *earlier)
    rows = {(row["method"], row["steps"]): row for row in second["rows"]}
    expected = {("Hadamard, ratios learned", 2): 0, ("Hadamard, ratios learned, 3 steps", 3): 0}
    expected |= {("Hadamard", 0): 1, ("grouped, learned", 2): 1}
    assert {key: rows[key]["run"] for key in expected} == expected
    losses = {row["method"]: row["loss"] for row in first["rows"]}
    assert rows["grouped, learned", 2]["loss"] == losses["grouped, learned"]
    assert [run["loss"] for run in second["earlier"]] == [first["loss"]]
    other = ["--train-steps", "11", "--steps", "2", *chosen, "Hadamard", *earlier]
    third = run("quantise.py", tmp_path / "c", *other)
    assert third["earlier"] == []
    assert {row["run"] for row in third["rows"]} == {0}


def test_an_earlier_file_that_is_not_there_is_noticed_before_training(tmp_path):
    command = [
        sys.executable,
        str(ROOT / "examples" / "quantise.py"),
        "--earlier",
        str(tmp_path / "none.json"),
    ]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.returncode == 2
    assert "--earlier: expected a file, got nothing at" in done.stderr


class Recording:
    """In place of a CUDA graph: it runs again what it has seen; as ``stale``, with the angles that it saw."""

    def __init__(self, gradients, stale):
        self.gradients, self.stale = gradients, stale
        gradients._run()
        self.kept = [p.grad for p in gradients.learned]

    def replay(self):
        learned = self.gradients.learned
        assert all(p.grad is kept for p, kept in zip(learned, self.kept, strict=True))
        now = [p.detach().clone() for p in learned]
        if self.stale:
            self.gradients._set(self.gradients._start)
        self.gradients._run()
        self.gradients._set(now)
        for p, kept in zip(learned, self.kept, strict=True):
            if kept is not None:
                p.grad = kept.copy_(p.grad)


def test_recorded_steps_learn_the_same_and_stale_ones_are_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    learning, study = import_module("quantise_learning"), import_module("quantise_study")
    model = import_module("language_model")
    size = model.Size(width=32, inner=48, layers=1, heads=2, context=32, batch=8)
    text, teacher = model.library_sources(), model.LanguageModel(size)
    mine = study.Study(teacher, text, size, "cpu", 1)
    method, bits = study.METHODS["grouped, learned"], study.SETTINGS["W4A4"]
    found = []
    for how in ("launched", "recorded", "stale"):
        monkeypatch.setattr(
            learning.Gradients, "_record", lambda self, how=how: Recording(self, how == "stale")
        )
        student = study.quantised(teacher, method, bits, mine.known, mine.rows)
        arguments = student, teacher, text, mine.small, "cpu", 14, method.rate, how != "launched"
        if how == "stale":
            with pytest.raises(RuntimeError, match="expected recorded gradients like launched ones"):
                learning._learn(*arguments)
        else:
            learning._learn(*arguments)
            found.append(torch.cat([p.detach().flatten() for p in student.parameters() if p.requires_grad]))
    assert torch.equal(*found)


def test_finetune(tmp_path):
    pytest.importorskip("peft")
    record = run("finetune.py", tmp_path)
    rows = {row["method"]: row for row in record["same_steps"]}
    ours, rival = rows["Givens, 8 rounds"], rows["BOFT, blocks of 4"]
    assert ours["step"] < rival["step"]
    counts = {row["method"]: row["steps"] for row in record["same_time"]}
    shortest = rows["LoRA, rank 2"]["step"]
    assert counts == {name: max(1, round(25 * shortest / row["step"])) for name, row in rows.items()}
    assert ours["kept"] < rival["kept"]
    assert abs(ours["loss"] - rows["OFT, blocks of 8"]["loss"]) < 0.3
