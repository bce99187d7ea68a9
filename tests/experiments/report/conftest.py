"""A report of figures 1 and 2 on small matrices."""

import shutil

import pytest
from experiments.conftest import TINY

from swallowtail.cli.commands import main
from swallowtail.experiments import fig1, fig2
from swallowtail.experiments.common import plots


def html(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of figures 1 and 2 on small matrices."""
    folder = tmp_path_factory.mktemp("made") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "DPI", 40)
        for module in (fig1, fig2):
            patch.setattr(module, "QUICK", module.Config(**TINY[module.__name__.split(".")[-1]]))
        assert main(["reproduce", "--only", "fig2, fig1", "-o", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture
def folder(made, tiny, tmp_path):
    """A copy of that report, to be spoilt."""
    tiny("fig1")
    tiny("fig2")
    return shutil.copytree(made, tmp_path / "report")
