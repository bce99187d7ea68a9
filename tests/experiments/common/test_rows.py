"""Rows survive a kill, come back as they were, and are never mixed with another run's."""

import math

import numpy as np
import pytest

from swallowtail.experiments.common.rows import collect, read_rows, write_rows


def counted(calls, name, rows):
    def task():
        calls.append(name)
        return rows

    return task


def test_rows_are_the_same_run_or_read(tmp_path):
    rows = [
        {"x": 0.1 + 0.2, "n": 3, "word": 'commas, "quotes"\nand lines', "big": 1e300},
        {"x": np.float32(0.1), "n": np.int64(7), "yes": True, "nothing": None, "infinite": math.inf},
    ]
    calls = []
    tasks = {"a": counted(calls, "a", rows), "5": counted(calls, "5", rows[:1])}
    first = collect(tasks, tmp_path / "deep" / "rows.csv", "test", progress=False)
    again = collect(tasks, tmp_path / "deep" / "rows.csv", "test", progress=False)
    assert first == again == collect(tasks, None, "test", progress=False)
    assert calls == ["a", "5"] * 2  # the second time they were read
    assert first[0]["x"] == 0.1 + 0.2
    assert first[1]["x"] == float(np.float32(0.1))
    assert [type(first[1][key]) for key in ("n", "x", "yes")] == [int, float, int]
    assert "nothing" not in first[1]
    assert first[2]["task"] == "5"


def test_a_stopped_run_continues_where_it_was(tmp_path):
    calls, path = [], tmp_path / "rows.csv"

    def stop():
        raise KeyboardInterrupt

    head = {"a": counted(calls, "a", [{"x": 1}]), "b": counted(calls, "b", [{"x": 2}, {"y": 3}])}
    with pytest.raises(KeyboardInterrupt):
        collect({**head, "c": stop}, path, "test", progress=False)
    rows = collect({**head, "c": counted(calls, "c", [{"x": 4}])}, path, "test", progress=False)
    assert calls == ["a", "b", "c"]
    assert rows == [
        {"task": "a", "x": 1},
        {"task": "b", "x": 2},
        {"task": "b", "y": 3},
        {"task": "c", "x": 4},
    ]


def test_rows_come_in_the_order_of_the_tasks(tmp_path):
    write_rows(tmp_path / "rows.csv", [{"task": "b", "x": 2}])
    tasks = {name: counted([], name, [{"x": 0}]) for name in "ab"}
    assert [r["task"] for r in collect(tasks, tmp_path / "rows.csv", "test", progress=False)] == ["a", "b"]


def test_rows_of_another_run_are_not_mixed(tmp_path):
    write_rows(tmp_path / "rows.csv", [{"task": "other", "x": 2}])
    with pytest.raises(ValueError, match="expected rows of this run, got the tasks other"):
        collect({"a": list}, tmp_path / "rows.csv", "test", progress=False)


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "rows.csv"
    write_rows(path, [{"task": "a", "x": 1}])
    with pytest.raises(TypeError, match="expected str, int or float values, got list"):
        write_rows(path, [{"task": "a", "x": [1]}])
    assert read_rows(path) == [{"task": "a", "x": 1}]
