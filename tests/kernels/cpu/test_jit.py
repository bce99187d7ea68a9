"""The compiler's disk cache when several processes fill it."""

from __future__ import annotations

import os
import pickle

from swallowtail.kernels.cpu import pairs as cpu_pairs


def test_each_process_names_its_own_files(monkeypatch):
    files = cpu_pairs.pack._cache._cache_file
    ours = files._data_name(1)
    monkeypatch.setattr(os, "getpid", lambda: 2**22)  # as another process would
    assert files._data_name(1) != ours
    assert files._data_name(1) != files._data_name(2)


def test_two_processes_that_compile_at_once_leave_a_consistent_cache(monkeypatch, tmp_path):
    """Both read an empty index, then one writes its index before, and its code after, the other writes both."""
    files = cpu_pairs.pack._cache._cache_file
    monkeypatch.setattr(files, "_cache_path", str(tmp_path))
    monkeypatch.setattr(files, "_index_path", str(tmp_path / "index"))
    save_data, pid = files._save_data, os.getpid()

    def interrupted(name, data):
        if data == "slow":  # the other process gets in between
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
            monkeypatch.setattr(files, "_load_index", dict)  # it had read the index when there was none
            files.save("other types", "quick")
            monkeypatch.undo()
            (tmp_path / name).write_bytes(pickle.dumps(data))
        else:
            save_data(name, data)

    monkeypatch.setattr(files, "_save_data", interrupted)
    files.save("types", "slow")
    with open(tmp_path / "index", "rb") as file:
        pickle.load(file)
        _, index = pickle.loads(file.read())
    stored = {key: pickle.loads((tmp_path / name).read_bytes()) for key, name in index.items()}
    assert stored == {"other types": "quick"}
