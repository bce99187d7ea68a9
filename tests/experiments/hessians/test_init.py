"""Hessians, on small settings: rows continue, and the report comes from them."""

import pytest
from experiments.checks import check_continues, check_makes_the_report

from swallowtail.experiments import hessians

WIDTHS = (16, 2, 10)
TINY = hessians.Config(cases=((WIDTHS, "hessian"), (WIDTHS, "ggn")), products=(8,), rows=40, cycles=1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Fits of a moment: the whole budget of cycles is spent elsewhere."""
    monkeypatch.setattr("swallowtail.fitting.methods.pairs.default_cycles", lambda n, K, effort="default": 1)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(hessians, TINY, tmp_path / "rows.csv")
    check_makes_the_report(hessians, rows, "angle", "iterations", "ours")
    ours = [r["angle"] for r in rows if r.get("method") == "ours"]
    rival = [r["angle"] for r in rows if r.get("method") == "c·I + low rank"]
    assert len(ours) == len(rival) == 2
