"""The record on disk."""

import json
from pathlib import Path

import pytest

from swallowtail import ArgumentError
from swallowtail.fitting.timing import calibrate, time_model
from swallowtail.fitting.timing.record import SHIPPED, calibration_file, read_tables, write_tables


def test_it_lies_in_the_cache_folder(cache):
    assert calibration_file().parent.parent == cache
    assert read_tables(calibration_file()) == {}


def test_what_is_written_is_read(cache):
    tables = read_tables(SHIPPED)
    write_tables(calibration_file(), tables)
    assert read_tables(calibration_file()) == tables
    assert list(calibration_file().parent.iterdir()) == [calibration_file()]


def test_a_record_that_is_written_again_keeps_its_permissions_and_its_link(cache):
    tables, path = read_tables(SHIPPED), calibration_file()
    write_tables(cache / "elsewhere.json", tables)
    (cache / "elsewhere.json").chmod(0o600)
    path.parent.mkdir()
    path.symlink_to(cache / "elsewhere.json")
    write_tables(path, tables)
    assert path.is_symlink()
    assert (cache / "elsewhere.json").stat().st_mode & 0o777 == 0o600


def test_who_has_no_home_has_no_record(monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert calibration_file() is None
    assert read_tables(calibration_file()) == {}
    assert not time_model().is_calibrated
    with pytest.raises(ArgumentError, match="set XDG_CACHE_HOME"):
        calibrate()


def test_a_record_that_may_not_be_read_counts_as_none(monkeypatch, tmp_path):
    def read_text(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", read_text)
    assert read_tables(tmp_path / "times.json") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        SHIPPED.read_text(encoding="utf-8").replace('"vectors": 256', '"vectors": 1e400', 1),
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
