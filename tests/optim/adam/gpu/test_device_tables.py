"""Tables in a GPU's memory are kept, but not without end."""

from __future__ import annotations

import torch

from swallowtail.optim.adam.gpu import device_tables


def test_tables_are_kept_up_to_a_number(monkeypatch):
    where = torch.device("cpu")
    table = ((1, -2), (3, 1 << 40))
    found = device_tables.on_device(table, where)
    assert found.tolist() == [list(row) for row in table]
    assert device_tables.on_device(table, where) is found
    monkeypatch.setattr(device_tables, "MOST_TABLES", 0)
    assert device_tables.on_device(((9, 9),), where) is not device_tables.on_device(((9, 9),), where)


def test_places_are_counted_in_entries():
    whole = torch.zeros(10, dtype=torch.float64)
    assert device_tables.place(whole[3:], whole) == 3
    assert device_tables.place(whole, whole[3:]) == -3
