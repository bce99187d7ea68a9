"""Every experiment has what the report needs; the small ones run, continue, and are drawn from their rows."""

import importlib

import pytest
from experiments.checks import check_comes_from_rows, check_continues
from experiments.conftest import without_times

from swallowtail.experiments import EXPERIMENTS


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_what_the_report_needs(name):
    module = importlib.import_module(EXPERIMENTS[name])
    assert module.TITLE
    assert len(module.__doc__) > 100
    assert isinstance(module.QUICK, module.Config)
    assert isinstance(module.FULL, module.Config)
    assert module.QUICK != module.FULL
    assert all(callable(getattr(module, part)) for part in ("run", "plot", "findings"))


def test_runs_repeat_and_half_a_run_continues_to_the_same_rows(name, tiny, rows, tmp_path):
    module, config = tiny(name)
    assert without_times(check_continues(module, config, tmp_path / "rows.csv")) == without_times(rows)


def test_figures_and_words_come_from_rows(name, tiny, rows):
    module, _ = tiny(name)
    check_comes_from_rows(module, rows, "angle")


def test_labels_and_units_are_on_every_axis(name, tiny, rows):
    module, _ = tiny(name)
    for axes in module.plot(rows).axes:
        if axes.lines:  # pictures have none
            assert "degrees" in axes.get_ylabel() + axes.get_xlabel()
            assert axes.get_xlabel()
            assert axes.get_legend() is not None
