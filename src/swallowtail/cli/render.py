"""What the library says of its arguments, said of the command's options."""

from __future__ import annotations

from swallowtail.errors import ArgumentError

OPTIONS = {  # argument of the library → option of the command
    "budget": "--budget",
    "checkpoint": "--checkpoint",
    "depth": "--depth",
    "epsilon": "--epsilon",
    "max_seconds": "--seconds",
    "method": "--method",
    "n_rotations": "--rotations",
    "names": "--only",
    "port": "--port",
    "redraw": "--redraw",
    "seed": "--seed",
    "symmetrize": "--symmetrize",
    "target": "--target",
    "target_angle": "--angle",
    "wiring": "--wiring",
}


def error_line(error: ArgumentError) -> str:
    """An error on one line, its argument named as the option.

    >>> print(error_line(ArgumentError("n_rotations", "an integer ≥ 0", -3, "try `n_rotations=10`")))
    --rotations: expected an integer ≥ 0, got -3; try --rotations 10
    """
    name = OPTIONS.get(error.name, error.name)
    return in_options(str(ArgumentError(name, error.expected, error.got, error.hint)))


def in_options(text: str) -> str:
    """Arguments that stand in backticks, `name` or `name=value`, as options; other text as it is.

    >>> in_options("try `method='auto'`, `symmetrize=True` or a larger `n_rotations`; not `numpy.save`")
    'try --method auto, --symmetrize or a larger --rotations; not `numpy.save`'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner: not ours
        return text
    return "".join(part if k % 2 == 0 else _option(part) for k, part in enumerate(parts))


def _option(code: str) -> str:
    name, equals, value = code.partition("=")
    if name not in OPTIONS:
        return f"`{code}`"
    if not equals or value == "True":
        return OPTIONS[name]
    value = value.translate(str.maketrans("", "", "()' ")).replace(",", ":")  # ('floats', 12) is floats:12
    return f"{OPTIONS[name]} {value}"
