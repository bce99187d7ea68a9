"""Claims about fits: spectra, inverses and probes."""

import numpy as np
import pytest

from swallowtail.experiments.claims.fits import inverse_rows, probe_rows, spectrum


@pytest.mark.parametrize(
    ("kind", "dimension", "distinct"), [("equal", 4, 4), ("equal", 1, 16), ("one", 12, 5)]
)
def test_spectra_have_one_mean_and_variance(kind, dimension, distinct):
    values = spectrum(16, kind, dimension)
    assert (values.mean(), values.std()) == pytest.approx((1.0, 0.5))
    assert len(np.unique(values.round(9))) == distinct


def test_a_fit_aimed_at_the_inverse_is_nearer_to_it():
    angles = {row["method"]: row["angle"] for row in inverse_rows(16, 16, 0.01, 1)}
    assert angles['target="inverse"'] < angles["inverting D"]
    assert angles["D fitted to the inverse"] < angles["inverting D"] + 1


def test_probes_from_a_region_help_there_only():
    angles = {(r["trained"], r["tested"]): r["angle"] for r in probe_rows(32, 3, 10, 1)}
    assert angles["region", "region"] < angles["sphere", "region"] - 3
    assert angles["region", "sphere"] > angles["sphere", "sphere"] + 3
