"""What every experiment is held to."""

import copy

import matplotlib
from experiments.conftest import without_times

from swallowtail.experiments.common import plots
from swallowtail.experiments.common.rows import read_rows, write_rows


def words(module, rows):
    """All that the report would say."""
    return str(
        [getattr(module, part)(rows) for part in ("findings", "text", "better") if hasattr(module, part)]
    )


def check_continues(module, config, path):
    """A run that lost half of its tasks ends with the same rows; returns them."""
    rows = module.run(config, path, progress=False)
    assert rows == read_rows(path)
    half = list(dict.fromkeys(row["task"] for row in rows))[::2]
    write_rows(path, [row for row in rows if row["task"] in half])
    assert without_times(module.run(config, path, progress=False)) == without_times(rows)
    return rows


def check_comes_from_rows(module, rows, *columns):
    """Plots and words change with the rows, and with nothing else."""
    altered = [row | {column: 0.5 * row[column] + 0.3 for column in columns if column in row} for row in rows]
    assert words(module, rows) == words(module, copy.deepcopy(rows))
    assert words(module, rows) != words(module, altered)
    with matplotlib.rc_context(plots.STYLE | {"savefig.dpi": 40}):
        picture = plots.picture(module.plot(rows))
        assert picture.startswith(b"\x89PNG")
        assert picture != plots.picture(module.plot(altered))


def check_makes_the_report(module, rows, *columns):
    """What is said and drawn comes from the rows, and all axes have labels."""
    check_comes_from_rows(module, rows, *columns)
    for axes in module.plot(rows).axes:
        assert axes.get_xlabel() or axes.get_title()
        assert axes.get_ylabel() or not axes.lines
