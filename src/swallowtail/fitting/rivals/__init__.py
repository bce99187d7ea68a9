"""The plain alternatives at equal floats, bytes, multiply-adds and time, and the verdict on a fit beside them."""

from swallowtail.fitting.methods.low_rank import DiagonalLowRank, low_rank
from swallowtail.fitting.rivals.forms import Alternative, cost_of, entries, equal_ranks, factor_rivals
from swallowtail.fitting.rivals.measure import Measure, likelihood_score, n_probes
from swallowtail.fitting.rivals.rotation import low_rank_rotation, rotation_rivals
from swallowtail.fitting.rivals.sparse import entries_cost
from swallowtail.fitting.rivals.symmetric import Care, Judged, dense_rivals
from swallowtail.fitting.rivals.verdict import verdict

__all__ = [
    "Alternative",
    "Care",
    "DiagonalLowRank",
    "Judged",
    "Measure",
    "cost_of",
    "dense_rivals",
    "entries",
    "entries_cost",
    "equal_ranks",
    "factor_rivals",
    "likelihood_score",
    "low_rank",
    "low_rank_rotation",
    "n_probes",
    "rotation_rivals",
    "verdict",
]
