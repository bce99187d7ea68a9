"""Whether what was asked of `fit_symmetric` or `fit_rotation` makes sense, before any work is done."""

from __future__ import annotations

from typing import Any

from swallowtail import checks
from swallowtail.wiring import Butterfly, Wiring

ON_A_BUTTERFLY = (
    "butterfly",
    "recovery",
    "sgd",
)  # methods whose wiring is fixed; sgd takes any that is given
ON_PAIRS = ("pairs", "hybrid", "products")  # methods that choose theirs


def check_request(
    method: str,
    methods: tuple[str, ...],
    wiring: Any,
    depth: Any,
    max_products: Any,
    max_seconds: float | None,
    target_angle: float | None,
    options: dict[str, Any],
) -> int:
    """Each argument by itself; the depth as an integer."""
    checks.choice("method", method, methods)
    if not isinstance(wiring, Wiring):
        checks.choice("wiring", wiring, ("auto", "butterfly", "pairs"))
    if max_products is not None:
        checks.integer("max_products", max_products, at_least=1)
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds: expected a number > 0, got {max_seconds}; try None for no limit")
    if target_angle is not None and not 0 < target_angle < 90:
        raise ValueError(f"target_angle: expected degrees above 0 and below 90, got {target_angle}; try 5")
    if options and method == "auto":
        raise TypeError(f"expected options only with a method asked for by name, got {sorted(options)}")
    return checks.integer("depth", depth, at_least=1)


def check_wiring(method: str, wiring: str | Wiring, depth: int, n: int, n_rotations: int | None) -> None:
    """Whether method, wiring and number of rotations go together."""
    given = isinstance(wiring, Wiring)
    if isinstance(wiring, Wiring) and wiring.n != n:
        raise ValueError(f"wiring: expected one on n = {n} coordinates, got {wiring!r}")
    if method in ON_PAIRS and (given or wiring == "butterfly"):
        raise ValueError(f"wiring: method={method!r} chooses pairs, got {wiring!r}; try method='butterfly'")
    if method in ON_A_BUTTERFLY and wiring == "pairs":
        raise ValueError(f"wiring: method={method!r} is for a fixed wiring, got 'pairs'; try method='pairs'")
    if n_rotations is None or not (given or wiring == "butterfly" or method in ON_A_BUTTERFLY):
        return
    fixed = wiring if isinstance(wiring, Wiring) else Butterfly(n, depth)
    if n_rotations != fixed.n_rotations:
        raise ValueError(
            f"n_rotations: expected {fixed.n_rotations}, which {fixed!r} has, or none, got {n_rotations}; try depth=…, "
            "or wiring='pairs' for any number"
        )
