"""SignedRotation keeps the contract of every operator, and refuses what is no sign."""

from dataclasses import dataclass

import contract
import numpy as np
import pytest
import torch
from cases import DTYPES, WIRINGS, dense_rotation, normal, random_angles

from swallowtail import Butterfly, Rotation, SignedRotation, load, save


@dataclass(frozen=True)
class Case:
    wiring: str
    dtype: torch.dtype = torch.float64
    batch: tuple[int, ...] = ()

    def __str__(self):
        return f"{self.wiring}-{self.dtype}-{self.batch}"

    def build(self):
        wiring = WIRINGS[self.wiring]
        angles = random_angles(wiring, *self.batch, dtype=self.dtype)
        signs = normal(*self.batch, wiring.n, dtype=torch.float64, seed=2).sign()
        dense = torch.zeros(*self.batch, wiring.n, wiring.n, dtype=torch.float64)
        for index in np.ndindex(self.batch):
            dense[index] = dense_rotation(wiring, angles[index]) * signs[index]
        return SignedRotation(Rotation(wiring, angles), signs), dense


CASES = [Case("butterfly-1"), Case("butterfly-64-deep"), Case("pairs-5-no-layers"), Case("pairs-17")]
CASES += [Case("butterfly-17-deep-reverse", dtype) for dtype in DTYPES[1:]]
CASES += [Case("butterfly-5", batch=batch) for batch in ((2, 1), (0,))]
PROMISES = [
    (promise, case) for promise in contract.promises for case in CASES if contract.applies(promise, case)
]


@pytest.mark.parametrize(
    ("promise", "case"), PROMISES, ids=[f"{promise.__name__}-{case}" for promise, case in PROMISES]
)
def test_promise(promise, case):
    promise(*case.build(), case)


def test_orthogonal_with_the_determinant_of_its_signs():
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    A = SignedRotation(Rotation.random(6, seed=0, dtype=torch.float64), signs)
    torch.testing.assert_close(A.T @ A.to_dense(), torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.det(A.to_dense()), signs.prod())


def test_signs_of_a_batch_on_one_rotation():
    signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    Q = Rotation.random(3, seed=0)
    A = SignedRotation(Q, signs)
    assert A.shape == (2, 3, 3)
    torch.testing.assert_close(A.to_dense(), Q.to_dense() * signs[:, None, :])
    torch.testing.assert_close(A.T.to_dense(), A.to_dense().mT)


def test_gradients_reach_the_angles():
    angles = random_angles(Butterfly(4)).requires_grad_()
    A = SignedRotation(Rotation(Butterfly(4), angles), [1, -1, 1, 1])
    x = normal(2, 4)
    assert torch.autograd.gradcheck(
        lambda theta: SignedRotation(Rotation(Butterfly(4), theta), A.signs)(x), angles
    )
    assert not A.signs.requires_grad


def test_costs_what_its_rotation_costs():
    Q = Rotation.random(8, seed=0)
    assert SignedRotation(Q, -np.ones(8)).multiply_adds == Q.multiply_adds


@pytest.mark.parametrize(
    ("signs", "message"),
    [
        ([1.0, 0.0, 1.0, 1.0], r"expected \+1 or −1, got 1 others, the first 0"),
        ([1.0, np.nan, 1.0, 1.0], r"expected \+1 or −1"),
        ([1.0, -1.0], "expected the last axis to be n = 4"),
    ],
)
def test_what_is_no_sign(signs, message):
    with pytest.raises(ValueError, match=message):
        SignedRotation(Rotation.random(4, seed=0), signs)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="expected a Rotation, got ndarray"):
        SignedRotation(np.eye(2), [1, 1])
    A = SignedRotation(Rotation.random(4, seed=0), [1, 1, -1, 1])
    with pytest.raises(ValueError, match="expected the last axis to be n = 4"):
        A(torch.ones(3, 1))  # would broadcast against the signs
    with pytest.raises(ValueError, match="expected shape"):
        A @ torch.ones(1, 4)


@pytest.mark.parametrize("name", ["butterfly-17", "pairs-17", "butterfly-1"])
def test_goes_round_a_file(name, tmp_path):
    wiring = WIRINGS[name]
    A = SignedRotation(
        Rotation(wiring, random_angles(wiring, dtype=torch.float32)),
        normal(wiring.n, dtype=torch.float32).sign(),
    )
    save(A, tmp_path / "a")
    B = load(tmp_path / "a")
    assert type(B) is SignedRotation
    assert B.rotation.wiring == wiring
    assert torch.equal(A.signs, B.signs)
    assert torch.equal(A.rotation.angles, B.rotation.angles)


def test_it_keeps_signs_of_its_own():
    signs = np.ones(8, np.float32)
    R = SignedRotation(Rotation.random(8, seed=0), signs)
    before = R(torch.ones(8))
    signs[:] = -1
    R.signs.zero_()
    assert torch.equal(R(torch.ones(8)), before)
