"""swallowtail warmup: what it says, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from swallowtail.cli import warmup
from swallowtail.cli.commands import main
from swallowtail.kernels.cpu import jit


def test_it_says_what_it_compiled_and_where_it_is_kept(monkeypatch, capsys):
    square = jit.njit()(_square)
    monkeypatch.setattr(
        warmup, "_all_jobs", lambda n: [warmup.Job("squares", "cpu", lambda: square(2.0))] * 2
    )
    assert main(["warmup", "--device", "cpu"]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.startswith("cpu  squares")
    assert "compiled 1: _square" in first
    assert "nothing to compile" in second
    assert total.startswith("1 kernels in ")
    assert "__pycache__" in total


def _square(x):
    return x * x


_square.__module__ = "swallowtail.made_for_this_test"  # only our own functions are counted


def test_jobs_are_those_of_the_device_and_the_lengths():
    jobs = warmup._all_jobs([64, 256])
    assert {job.device for job in jobs} == {"cpu", "cuda"}
    assert sum(" n = 64," in job.what for job in jobs) == 4
    for job in jobs:
        if job.device == "cpu" and job.what in ("products", "gradients"):
            job.run()


def test_it_calibrates_only_when_asked(monkeypatch, capsys, tmp_path):
    measured = []

    def calibrate(device, progress):
        progress(0, 2, "pairs")
        measured.append(device)
        return tmp_path / "times.json"

    monkeypatch.setattr(warmup, "_all_jobs", lambda n: [])
    monkeypatch.setattr("swallowtail.fitting.timing.calibrate", calibrate)
    assert main(["warmup", "--device", "cpu"]) == 0
    assert measured == []
    assert main(["warmup", "--device", "cpu", "--calibrate"]) == 0
    assert measured == ["cpu"]
    assert f"times of products are kept in {tmp_path / 'times.json'}" in capsys.readouterr().out


def test_mistakes_are_one_line(capsys):
    assert main(["warmup", "--n", "1"]) == 1
    assert "--n: expected an integer ≥ 2, got 1" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["warmup", "--device", "cuda"]) == 1
        assert "--device: expected a device that PyTorch sees" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["warmup", "--device", "tpu"])
