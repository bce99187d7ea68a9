"""Algorithm 2, on small settings: rows continue, and the report comes from them."""

from experiments.checks import check_continues, check_makes_the_report

from swallowtail.experiments import algorithm2

TINY = algorithm2.Config(
    limits=(("quadratic", 12), ("Rosenbrock", 12)),
    seeds=1,
    epsilons=(0.1, 1.0),
    minibatch_gradients=6,
    wells=5,
    rows=30,
)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(algorithm2, TINY, tmp_path / "rows.csv")
    check_makes_the_report(algorithm2, rows, "gap", "loss")
    assert {row["part"] for row in rows} == {"goal", "curve", "detail", "epsilon", "minibatch", "identity"}
    assert all(row["gradients"] <= 12 for row in rows if row["part"] == "curve")
