"""Gradients on minibatches average, but not as printed."""

from swallowtail.experiments.algorithm2.identity import identity_rows


def test_minibatch_gradients_average_with_weights_and_not_as_printed():
    weighted, printed = identity_rows((10, 15, 5), 1)
    assert weighted["deviation"] < 1e-12
    assert printed["deviation"] > 0.1
