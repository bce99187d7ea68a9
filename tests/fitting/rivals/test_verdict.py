"""Honest words, the same every time."""

from swallowtail.fitting.budget import Cost
from swallowtail.fitting.result import Rival
from swallowtail.fitting.rivals import verdict
from swallowtail.fitting.timing import TimeModel

COST = Cost(256, 1792, 832, 36.6e-6)


def rival(angle, equal, name="c·I + rank 3", work=10):
    return Rival(name, angle, 0.1, 10, 40, work, equal, None, angle)


def test_every_budget_is_listed():
    model = TimeModel("cpu", 256, "not calibrated", {})
    rivals = [
        rival(9.0, "floats"),
        rival(7.0, "floats, time", "diagonal + rank 2"),
        rival(3.0, "bytes", "c·I + rank 6"),
        rival(5.0004, "multiply-adds", "band of 9"),
        rival(1.0, "", "butterfly, as fitted"),
    ]
    assert verdict(5.0, COST, rivals, model) == (
        "This fit: 5.00°. Won at equal floats (256) against diagonal + rank 2, 7.00°; time (36.6 µs for 256 vectors, "
        "not calibrated) against diagonal + rank 2, 7.00°. Tied at equal multiply-adds (832) with band of 9, 5.00°. "
        "Lost at equal bytes (1792) to c·I + rank 6, 3.00°."
    )


def test_nats_are_told_apart_more_finely():
    assert verdict(1.0, COST, [rival(1.0001, "floats")], unit=" nats") == (
        "This fit: 1.0000 nats. Won at equal floats (256) against c·I + rank 3, 1.0001 nats."
    )


def test_without_rivals_only_the_fit_is_named():
    assert verdict(5.0, COST, []) == "This fit: 5.00°."
