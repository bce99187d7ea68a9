"""`H.to_linear_operator()` under linear_operator's own suite, for no, one and two batch dimensions."""

import unittest
import warnings

import pytest
import torch
from cases import WIRINGS, normal, random_angles

from swallowtail import Butterfly, Rotation, SymmetricOperator

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit.script when imported
    pytest.importorskip(
        "linear_operator", reason="linear_operator is not installed: pip install swallowtail[gp]"
    )
    from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

# What linear_operator itself calls: torch.jit, and sparse tensors without saying whether to check them.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:Sparse invariant checks:UserWarning"
)


class _Givens(LinearOperatorTestCase):
    seed = 0
    batch: tuple[int, ...] = ()
    wiring = Butterfly(5, 2)

    def create_linear_op(self):
        angles = random_angles(self.wiring, *self.batch, dtype=torch.float32)
        d = 1 + normal(*self.batch, self.wiring.n, dtype=torch.float32).abs()
        return SymmetricOperator(
            Rotation(self.wiring, angles.requires_grad_()), d.requires_grad_()
        ).to_linear_operator()

    def evaluate_linear_op(self, linear_op):
        angles, d, wiring = linear_op.angles, linear_op.eigenvalues_, linear_op.wiring
        unit = torch.eye(wiring.n, dtype=angles.dtype).expand(*angles.shape[:-1], wiring.n, wiring.n)
        Q = unit
        for index in range(wiring.n_layers):
            i, j = torch.from_numpy(wiring.layer(index)).unbind(-1)
            theta = angles[..., wiring.offsets[index] : wiring.offsets[index + 1]]
            layer = unit.clone()
            layer[..., i, i], layer[..., j, j] = theta.cos(), theta.cos()
            layer[..., i, j], layer[..., j, i] = -theta.sin(), theta.sin()
            Q = Q @ layer
        return Q @ torch.diag_embed(d) @ Q.mT


class TestGivens(_Givens, unittest.TestCase):
    pass


class TestGivensPairs(_Givens, unittest.TestCase):
    wiring = WIRINGS["pairs-5-empty-layers"]


class TestGivensBatch(_Givens, unittest.TestCase):
    batch = (3,)


class TestGivensTwoBatches(_Givens, unittest.TestCase):
    batch = (2, 3)


def test_one_rotation_with_a_batch_of_eigenvalues():
    wiring = Butterfly(6)
    H = SymmetricOperator(Rotation(wiring, random_angles(wiring)), normal(3, 6))
    L = H.to_linear_operator()
    assert L.shape == (3, 6, 6)
    torch.testing.assert_close(L.to_dense(), H.to_dense())
    torch.testing.assert_close(L[1].to_dense(), H.to_dense()[1])


def test_mixed_dtypes_promote():
    wiring = Butterfly(6)
    H = SymmetricOperator(Rotation(wiring, random_angles(wiring, dtype=torch.float32)), normal(6))
    assert H.to_linear_operator().dtype == torch.float64
