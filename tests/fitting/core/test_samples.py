"""Where samples come from: the inputs of the paper, a region, limits."""

import numpy as np
import torch

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.metrics import error_angle
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator


def operator(fit):
    Q = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    return Q if fit.eigenvalues is None else SymmetricOperator(Q, torch.from_numpy(fit.eigenvalues))


def test_the_papers_inputs():
    H = random_symmetric(16, 3, 0)
    samples = np.random.default_rng(0).standard_normal((16, 500))
    fits = [
        fit_sgd(H, inputs="cube"),
        fit_sgd(H, inputs=samples),
        fit_sgd(H, inputs=lambda k, rng: rng.standard_normal((16, k))),
        fit_sgd((samples, H @ samples)),
        fit_sgd(H, fresh=True, batch_size=7),
        fit_sgd(H, rate=lambda step: 0.004 / (1 + step / 2000)),
        fit_sgd(H, rate=(0.002, 0.001)),
    ]
    assert [fit.n_products for fit in fits] == [512, 512, 512, 0, 5120, 512, 512]
    baseline = error_angle(H, np.eye(16))
    for fit in fits:
        assert error_angle(H, operator(fit)) < baseline - 5


def test_a_region_is_fitted_better_by_its_own_inputs():
    H = random_symmetric(16, 8, 0)
    basis = random_orthogonal(16, 5)[:, :4]
    inside = fit_sgd(H, inputs=lambda k, rng: basis @ rng.standard_normal((4, k)), epochs=60)
    anywhere = fit_sgd(H, epochs=60)
    angles = [error_angle(H @ basis, lambda X, f=f: operator(f) @ (basis @ X)) for f in (inside, anywhere)]
    assert angles[0] < angles[1]
