"""The contract, for every kind of operator on every wiring."""

import contract
import pytest
from cases import operator_cases

CASES = operator_cases("Rotation") + operator_cases("SymmetricOperator")
PROMISES = [
    (promise, case) for promise in contract.promises for case in CASES if contract.applies(promise, case)
]


@pytest.fixture(scope="module")
def built():
    return {case: case.build() for case in CASES}


@pytest.mark.parametrize(
    ("promise", "case"),
    PROMISES,
    ids=[f"{promise.__name__}-{case.kind}-{case}" for promise, case in PROMISES],
)
def test_promise(promise, case, built):
    operator, dense = built[case]
    promise(operator, dense, case)
