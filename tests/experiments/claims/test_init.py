"""The claims, on small settings: rows continue, and the report comes from them."""

from experiments.checks import check_continues, check_makes_the_report

from swallowtail.experiments import claims

TINY = claims.Config(
    seeds=1,
    epochs=2,
    dimensions=(1, 4),
    largest=(4,),
    rates=(0.002, 0.008),
    factors=(0.1, 1.0),
    depths=(1, 2),
    draws=3,
    count_sizes=(4,),
    n=8,
    n_large=2,
    interaction_sizes=(8, 9),
)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(claims, TINY, tmp_path / "rows.csv")
    check_makes_the_report(claims, rows, "angle", "value")
