"""The claims, on small settings: rows continue, and the report comes from them."""

from experiments.checks import check_continues, check_makes_the_report

from swallowtail.experiments import claims

TINY = claims.Config(1, 2, (1, 4), (4,), (0.002, 0.008), (0.1, 1.0), (1, 2), 3, (4,), 8, 2, (8, 9))


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(claims, TINY, tmp_path / "rows.csv")
    check_makes_the_report(claims, rows, "angle", "value")
