"""The studies of language models, at the size of a laptop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras
ROOT = Path(__file__).parents[2]


def run(name, output):
    command = [sys.executable, str(ROOT / "examples" / name), "--output", str(output)]
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


def test_finetune(tmp_path):
    pytest.importorskip("peft")
    record = run("finetune.py", tmp_path)
    rows = {row["method"]: row for row in record["same_steps"]}
    ours, rival = rows["Givens, 8 rounds"], rows["BOFT, blocks of 4"]
    assert ours["seconds"] < rival["seconds"]
    assert ours["kept"] < rival["kept"]
    assert abs(ours["loss"] - rows["OFT, blocks of 8"]["loss"]) < 0.3
