"""What editors are told of the options is what the methods take."""

from swallowtail.fitting.options import SharedOptions, SymmetricOptions
from swallowtail.fitting.request import OPTIONS


def test_every_option_has_a_type_and_no_other():
    taken = {
        kind: {name for names in methods.values() for name in names} for kind, methods in OPTIONS.items()
    }
    assert set(SharedOptions.__annotations__) == taken["rotation"]
    assert set(SymmetricOptions.__annotations__) == taken["symmetric"]
