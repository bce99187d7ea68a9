"""The record on disk."""

import json

import pytest

from swallowtail import ArgumentError
from swallowtail.fitting.timing.record import SHIPPED, calibration_file, read_tables, write_tables


def test_it_lies_in_the_cache_folder(cache):
    assert calibration_file().parent.parent == cache
    assert read_tables(calibration_file()) == {}


def test_what_is_written_is_read(cache):
    tables = read_tables(SHIPPED)
    write_tables(calibration_file(), tables)
    assert read_tables(calibration_file()) == tables
    assert list(calibration_file().parent.iterdir()) == [calibration_file()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps({"format": 99, "tables": {}}),
        json.dumps({"format": 1, "tables": {"cpu float32": {"series": {}}}}),
        SHIPPED.read_text(encoding="utf-8").replace("[[", "[[NaN, 1.0], [", 1),
    ],
)
def test_damage_is_told(text, tmp_path):
    path = tmp_path / "times.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError, match="delete it, or calibrate again"):
        read_tables(path)
