"""Settings so small that an experiment takes a moment."""

import importlib

import pytest

from swallowtail import datasets
from swallowtail.experiments import EXPERIMENTS
from swallowtail.experiments.common import plots

TINY = {
    "fig1": {"n": 8, "n_large": 1, "epochs": 3, "n_seeds": 2, "n_timed": 1, "cycles": (0, 2)},
    "samples": {
        "n": 8,
        "n_large": 1,
        "m": (4, 16),
        "n_draws": 64,
        "fresh": 64,
        "products": (4, 8),
        "n_seeds": 2,
    },
    "fig2": {
        "n": 8,
        "n_large": (0, 4, 8),
        "epochs": 2,
        "starts": 1,
        "kicks": 0,
        "cycles": 1,
        "n_seeds": 2,
        "n_more": 1,
    },
    "fig3": {"epochs": 1, "n_starts": 2, "cycles": 0, "fashion": False, "sensors": 16, "sides": (4, 4)},
}


@pytest.fixture(params=sorted(TINY))
def name(request):
    return request.param


@pytest.fixture
def tiny(monkeypatch):
    """A function: name → the module and its small settings. MNIST is a kernel on 4×4 pixels meanwhile."""
    monkeypatch.setattr(plots, "DPI", 40)
    H = datasets.grid_kernel((4, 4), "rbf", 1.0)
    monkeypatch.setattr(datasets, "mnist_covariance", lambda path=None: (H, "5000 of nobody's images."))
    monkeypatch.setattr(datasets, "digits_covariance", lambda: H)

    def load(name):
        module = importlib.import_module(EXPERIMENTS[name])
        config = module.Config(**TINY[name])
        monkeypatch.setattr(module, "QUICK", config)
        return module, config

    return load


@pytest.fixture
def rows(name, tiny, kept={}):  # noqa: B006  kept from test to test on purpose
    """The rows of the experiment ``name``, run once."""
    if name not in kept:
        module, config = tiny(name)
        kept[name] = module.run(config, None, progress=False)
    return kept[name]


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
