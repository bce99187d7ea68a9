"""Every example runs as it stands and draws its picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAWN = ("denoise", "distributed", "heat", "layer", "outliers", "preconditioner", "start", "tracking")


@pytest.mark.extras
@pytest.mark.parametrize("name", DRAWN)
def test_example(name, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--output", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, env=env)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_the_gallery_shows_all_of_them():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf8")
    assert all(f"`{name}.py`" in text and f"pictures/{name}.png" in text for name in DRAWN)
