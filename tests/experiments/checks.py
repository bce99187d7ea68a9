"""What every experiment is held to."""

import copy

import matplotlib

from swallowtail.experiments.common import draw as _draw
from swallowtail.experiments.common.run import read_rows, write_rows

from .conftest import without_times


def words(module, rows):
    """All that the report would say."""
    return str([getattr(module, part)(rows) for part in ("findings", "text") if hasattr(module, part)])


def check_continues(module, config, path):
    """A run that lost half of its tasks ends with the same rows; returns them."""
    rows = module.run(config, path, progress=False)
    assert rows == read_rows(path)
    half = list(dict.fromkeys(row["task"] for row in rows))[::2]
    write_rows(path, [row for row in rows if row["task"] in half])
    assert without_times(module.run(config, path, progress=False)) == without_times(rows)
    return rows


def check_comes_from_rows(module, rows, *columns):
    """Plots and words change with the rows, and with nothing else; all axes have labels."""
    altered = [row | {column: 0.5 * row[column] + 0.3 for column in columns if column in row} for row in rows]
    assert words(module, rows) == words(module, copy.deepcopy(rows))
    assert words(module, rows) != words(module, altered)
    with matplotlib.rc_context(_draw.STYLE | {"savefig.dpi": 40}):
        figure = module.plot(rows)
        picture = _draw.picture(figure)
        assert picture.startswith(b"\x89PNG")
        assert picture != _draw.picture(module.plot(altered))
    for axes in figure.axes:
        assert axes.get_xlabel() or axes.get_title()
        assert axes.get_ylabel() or not axes.lines
