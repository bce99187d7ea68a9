"""The studies of language models, at the size of a laptop."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras
EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, output, *options):
    command = [sys.executable, str(EXAMPLES / name), "--output", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((output / name).with_suffix(".json").read_text())


def test_quantise(tmp_path):
    record = run("quantise.py", tmp_path)
    assert (tmp_path / "quantise.png").stat().st_size > 20_000
    for setting in ("W4A4", "W2"):
        losses = {row["method"]: row["loss"] for row in record["rows"] if row["setting"] == setting}
        left = min(losses["Hadamard"], losses["random Hadamard"])
        assert 0 < losses["grouped, learned"] < 0.8 * left
        assert losses["round to nearest"] > losses["Hadamard"]


def test_finetune(tmp_path):
    pytest.importorskip("peft")
    record = run("finetune.py", tmp_path)
    rows = {row["method"]: row for row in record["same_steps"]}
    ours, rival = rows["Givens, 8 rounds"], rows["BOFT, blocks of 4"]
    assert ours["seconds"] < rival["seconds"]
    assert ours["kept"] < rival["kept"]
    assert abs(ours["loss"] - rows["OFT, blocks of 8"]["loss"]) < 0.3
