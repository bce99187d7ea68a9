"""The model of times: interpolation, and which table serves."""

import numpy as np
import pytest
import torch

from swallowtail import fit_symmetric, random_symmetric
from swallowtail.fitting.timing import TimeModel, calibration_file, time_model
from swallowtail.fitting.timing.record import SHIPPED, read_tables, write_tables

SERIES = {
    "hybrid": {10: [(1.0, 10.0), (3.0, 14.0)], 100: [(1.0, 100.0), (3.0, 140.0)]},
    "pairs": {10: [(1.0, 10.0), (3.0, 20.0)], 100: [(1.0, 100.0), (3.0, 200.0)]},
    "plain": {10: [(0.0, 1.0), (4.0, 5.0)], 100: [(0.0, 10.0), (4.0, 50.0)]},
    "dense": {10: [(0.0, 1.0)], 100: [(0.0, 100.0)]},
}
MODEL = TimeModel("cpu", 256, "not calibrated", SERIES)


def test_points_and_between():
    assert MODEL.at("pairs", 10, 1.0) == pytest.approx(10.0)
    assert MODEL.at("pairs", 100, 3.0) == pytest.approx(200.0)
    assert MODEL.at("pairs", 10, 2.0) == pytest.approx(15.0)
    assert MODEL.at("pairs", 10, 5.0) == pytest.approx(30.0)
    assert MODEL.at("pairs", round(1000**0.5), 1.0) == pytest.approx(1000**0.5, rel=0.02)
    assert MODEL.at("pairs", 1000, 1.0) == pytest.approx(1000.0)
    assert MODEL.at("dense", 1000) == pytest.approx(1000.0)
    assert MODEL.at("dense", 3) == pytest.approx(1.0)


def test_rotations_and_terms_add():
    assert MODEL.seconds(10, "pairs", 0, 2) == pytest.approx(3.0)
    assert MODEL.seconds(10, "pairs", 20) == pytest.approx(15.0)
    assert MODEL.seconds(10, "pairs", 20, 3) == pytest.approx(15.0 + 14.0 - MODEL.at("pairs", 10, 0.2))
    assert MODEL.seconds(10, "grouped", 20) == MODEL.seconds(10, "pairs", 20)  # no series of its own


def test_the_shipped_table_is_complete_and_rises():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for device in ("cpu", "cuda"):
            model = time_model(device, dtype)
            assert model.source == "not calibrated"
            assert not model.is_calibrated
            for n in (2, 64, 500, 5000):
                times = [model.seconds(n, "pairs", K) for K in (1, n, 10 * n, 100 * n)]
                assert times == sorted(times)
                assert times[0] > 0
                ranks = [model.seconds(n, "", 0, r) for r in (0, 1, n // 2)]
                assert ranks == sorted(ranks)


def test_a_calibrated_machine_is_said_to_be_one(cache):
    tables = read_tables(SHIPPED)
    tables["cpu float64"]["made"] = "2030-01-02"
    write_tables(calibration_file(), tables)
    model = time_model("cpu", torch.float64)
    assert model.is_calibrated
    result = fit_symmetric(random_symmetric(16, 3, 0), n_rotations=8)
    assert result.time_source == "calibrated 2030-01-02"
    assert "256 vectors, calibrated 2030-01-02" in result.message


def test_a_fit_never_calibrates(cache):
    fit_symmetric(np.eye(4) + np.ones((4, 4)), budget="time")
    assert not calibration_file().exists()
