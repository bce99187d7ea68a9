"""The error of a wrong argument: its fields, its text, its types."""

import copy
import pickle

import pytest

from swallowtail import ArgumentError

TEXTS = [
    (("n", "an integer ≥ 1", 0, "try 1 or more"), "n: expected an integer ≥ 1, got 0; try 1 or more"),
    (("n", "an integer ≥ 1", 0), "n: expected an integer ≥ 1, got 0"),
    (("", "one device", "two", ""), "expected one device, got two"),
    (("got", "anything", None), "got: expected anything, got None"),
]


@pytest.mark.parametrize(("fields", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_fields_and_text(fields, text):
    error = ArgumentError(*fields)
    assert str(error) == text
    for other in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (other.name, other.expected, other.got, other.hint) == (*fields, "")[:4]
        assert str(other) == text


@pytest.mark.parametrize("kind", [ValueError, TypeError, ArgumentError])
def test_it_is_a_value_error_and_a_type_error(kind):
    with pytest.raises(kind, match="n: expected more, got less"):
        raise ArgumentError("n", "more", "less")
