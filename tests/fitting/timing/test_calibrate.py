"""Calibration: every series is measured, and kept beside others."""

import sys

import pytest
import torch

from swallowtail.fitting.timing import calibrate, calibration_file, time_model
from swallowtail.fitting.timing.record import SHIPPED, read_tables, write_tables

SERIES = {"pairs", "grouped", "butterfly", "plain", "hybrid", "sparse", "dense"}


@pytest.fixture
def small(monkeypatch):
    # The package has the function under this name.
    module = sys.modules["swallowtail.fitting.timing.calibrate"]
    monkeypatch.setattr(module, "SIZES", (8, 32))
    monkeypatch.setattr(module, "LARGEST_GROWN", 16)
    monkeypatch.setattr(module, "REPEATS", 2)


def test_every_series_is_measured(cache, small):
    write_tables(calibration_file(), {"cuda float32": read_tables(SHIPPED)["cpu float32"]})
    seen, threads = [], torch.get_num_threads()
    path = calibrate(progress=lambda done, total, label: seen.append((done, total, label)))
    assert torch.get_num_threads() == threads
    assert path == calibration_file()
    tables = read_tables(path)
    assert set(tables) == {"cpu float32", "cpu float64", "cuda float32"}
    assert set(tables["cpu float32"]["series"]) == SERIES
    assert [done for done, _, _ in seen] == list(range(seen[0][1]))
    assert any("pairs, n = 32, float64" in label for _, _, label in seen)
    model = time_model("cpu", torch.float32)
    assert model.is_calibrated
    assert model.vectors == 256
    assert 0 < model.seconds(16, "pairs", 32) < 1
