"""Options that `GivensLBFGS` and `minimize_givens` share."""

from __future__ import annotations

from typing import Any, NamedTuple

from swallowtail import checks
from swallowtail.optim.base import check_number

PRECONDITIONERS = ("rotated", "diagonal", "random", "none")


class Settings(NamedTuple):
    """What the iteration needs to know; `GivensLBFGS` says what each one means."""

    lr: float = 1.0
    max_iter: int = 20
    max_eval: int = 25
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 10
    line_search: bool = True
    preconditioner: str = "rotated"
    refresh: int = 1
    damping: float = 0.03
    gate_decay: float = 0.9


def check_learning(*, preconditioner: Any, refresh: Any, damping: Any, gate_decay: Any) -> None:
    """Check how H₀ is learned."""
    checks.choice("preconditioner", preconditioner, PRECONDITIONERS)
    checks.integer("refresh", refresh, at_least=1)
    check_number("damping", damping, above=0)
    check_number("gate_decay", gate_decay, at_least=0, below=1)
