"""The request: what was asked of `fit_symmetric` or `fit_rotation`, checked before any work is done."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import MOST_ROUNDS, Budget, default_budget, largest_budget
from swallowtail.fitting.core.records import Callback
from swallowtail.fitting.functions import SpectralFunction, spectral_function
from swallowtail.wiring import Butterfly, Wiring

METHODS = {
    "symmetric": ("auto", "pairs", "grouped", "butterfly", "recovery", "hybrid", "sgd", "products"),
    "rotation": ("auto", "recovery", "butterfly", "pairs", "sgd"),
}
TARGETS = ("matrix", "inverse", "likelihood")  # or a function; that of a rotation is "rotation"
EFFORTS = ("quick", "default", "best")
ON_A_FIXED_WIRING = ("butterfly", "recovery", "sgd")  # sgd takes any wiring that is given
ON_A_BUDGET = ("auto", "hybrid", "pairs")  # methods that take floats, bytes, multiply-adds or time
ON_CHOSEN_PAIRS = ("pairs", "grouped", "hybrid", "products")
CHOSEN = ("pairs", "grouped")  # wirings that a fit makes
_SGD = (
    "inputs",
    "n_samples",
    "fresh",
    "epochs",
    "batch_size",
    "rate",
    "rescale",
    "floor",
    "tolerance",
    "angles",
)
OPTIONS = {  # what a method takes beyond the fields of `Request`
    "symmetric": {
        "pairs": ("steps", "cycles", "finish"),
        "grouped": ("size", "n_rounds", "steps", "cycles", "finish"),
        "butterfly": ("starts", "kicks", "order"),
        "hybrid": ("rank",),
        "sgd": (*_SGD, "eigenvalues"),
        "products": ("passes", "cycles", "finish"),  # the last two where H is given by its entries
    },
    "rotation": {"pairs": ("cycles",), "butterfly": ("starts", "kicks"), "sgd": _SGD},
}
COUNTS = ("steps", "cycles", "finish", "starts", "kicks")  # options that are whole numbers from 0, or None
SIZES = {"size": 2, "n_rounds": 1, "passes": 0}  # and those that are whole numbers from these
LARGEST_SEED = 2**63  # the seeds that follow it are used as well


@dataclass(frozen=True)
class Request:
    """The arguments of a fit. See `fit_symmetric` for what each means."""

    target: str | Callable[[Any], Any]
    method: str = "auto"
    n_rotations: int | None = None
    budget: Any = None
    wiring: str | Wiring = "auto"
    depth: int = 1
    max_products: int | None = None
    max_seconds: float | None = None
    target_angle: float | None = None
    effort: str = "default"
    checkpoint: Any = None
    seed: int = 0
    progress: bool = False
    callback: Callback | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check each argument by itself."""
        if self.target != "rotation" and not callable(self.target):
            checks.choice("target", self.target, TARGETS, ", or a function of the eigenvalues")
        checks.choice("method", self.method, METHODS[self.kind])
        checks.choice("effort", self.effort, EFFORTS)
        checks.integer("depth", self.depth, at_least=1)
        if not isinstance(self.wiring, Wiring):
            checks.choice("wiring", self.wiring, ("auto", "butterfly", *CHOSEN))
        if self.n_rotations is not None:
            checks.integer("n_rotations", self.n_rotations, at_least=0)
        if self.budget is not None:
            self._check_budget()
        if self.max_products is not None:
            checks.integer("max_products", self.max_products, at_least=1)
        endless = isinstance(self.max_seconds, (float, np.floating)) and self.max_seconds == math.inf
        if self.max_seconds is not None and not endless:
            checks.number("max_seconds", self.max_seconds, above=0)
        if self.target_angle is not None and not 0 < checks.number("target_angle", self.target_angle) < 90:
            raise ArgumentError("target_angle", "degrees above 0 and below 90", self.target_angle, "try 5")
        if checks.seed("seed", self.seed) >= LARGEST_SEED:
            raise ArgumentError("seed", "an integer below 2^63", self.seed, "try 0")
        if self.checkpoint is not None:
            checks.path("checkpoint", self.checkpoint)
            if os.path.isdir(self.checkpoint):
                raise ArgumentError("checkpoint", "a file", f"the folder {self.checkpoint}", "add a name")
        if self.callback is not None and not callable(self.callback):
            expected = "a function of stage, rotations and objective"
            raise ArgumentError("callback", expected, repr(self.callback), "try `print`")
        for name in self.options:
            self._check_option(name)

    @property
    def kind(self) -> str:
        """What is fitted: "symmetric" or "rotation"."""
        return "rotation" if self.target == "rotation" else "symmetric"

    @property
    def target_name(self) -> str:
        """The target, "function" if it is one of the caller's."""
        return "function" if callable(self.target) else self.target

    @property
    def function(self) -> SpectralFunction | None:
        """f, where the target is f(H) and not H itself."""
        return spectral_function(self.target)

    @property
    def fits_on_a_device(self) -> bool:
        """Whether a matrix on a GPU can be fitted there: on chosen pairs, in groups or free, close to H itself."""
        plain = self.target == "matrix" and self.budget is None and self.target_angle is None
        pairs = self.method in ("auto", "pairs", "grouped") and self.wiring in ("auto", *CHOSEN)
        return plain and pairs and self.checkpoint is None

    def _check_budget(self) -> None:
        """Whether the budget is one, and goes together with the rest."""
        Budget.parse(self.budget)
        for name in ("n_rotations", "target_angle"):
            if getattr(self, name) is not None:
                expected = f"no `{name}` beside it, as each of them says how much there may be"
                got = f"both, `{name}={getattr(self, name)!r}`"
                raise ArgumentError("budget", expected, got, "leave one out")
        if self.method not in ON_A_BUDGET:
            expected = f"method {' or '.join(map(repr, ON_A_BUDGET))} with a budget"
            raise ArgumentError("method", expected, repr(self.method), "try `method='auto'`")
        if self.wiring not in ("auto", "pairs"):
            expected = "'auto' or 'pairs' with a budget, which buys as many rotations as it can"
            raise ArgumentError("wiring", expected, repr(self.wiring), "try `wiring='auto'`")

    def _check_option(self, name: str) -> None:
        """Refuse a name that is neither an argument nor an option of the method asked for; say which one is near."""
        options = OPTIONS[self.kind]
        known = options.get(self.method, ())
        if name in known:
            if name in SIZES or (name in COUNTS and self.options[name] is not None):
                checks.integer(name, self.options[name], at_least=SIZES.get(name, 0))
            return
        owners = [method for method, names in options.items() if name in names]
        if owners:
            expected = "a method that has this option"
            raise ArgumentError(name, expected, f"method={self.method!r}", f"try `method={owners[0]!r}`")
        other = {"symmetric": ("options",), "rotation": ("options", "budget", "target")}[self.kind]
        arguments = [argument.name for argument in fields(self) if argument.name not in other]
        arguments += ["symmetrize"] if self.kind == "symmetric" else []
        names = [*arguments, *(option for names in options.values() for option in names)]
        near = ["seed"] if name == "random_state" else difflib.get_close_matches(name, names, n=1)
        hint = f"try `{near[0]}`" if near else f"try help(fit_{self.kind}) for those there are"
        raise ArgumentError(name, f"an argument of fit_{self.kind}", "a name that it does not have", hint)

    def most_rotations(self, n: int) -> int:
        """How many rotations on n coordinates it allows; of a budget, those whose cost is its default amount."""
        budget = default_budget(n, self.depth) if self.n_rotations is None else int(self.n_rotations)
        if self.n_rotations is None and self.target_angle is not None:
            budget *= MOST_ROUNDS  # as few as it takes are kept
            if self.target == "rotation":
                budget = min(budget, n * (n - 1) // 2)  # with so many any rotation is met exactly
        return min(budget, largest_budget(n))

    def fixed_wiring(self, n: int) -> Wiring:
        """The wiring given, or the butterfly of the depth asked for."""
        return self.wiring if isinstance(self.wiring, Wiring) else Butterfly(n, self.depth)

    def check_wiring(self, n: int, method: str) -> None:
        """Whether the method, the wiring and the number of rotations go together."""
        wiring, given = self.wiring, isinstance(self.wiring, Wiring)
        if isinstance(wiring, Wiring) and wiring.n != n:
            raise ArgumentError("wiring", f"one on n = {n} coordinates", repr(wiring))
        if method in ON_CHOSEN_PAIRS and (given or wiring == "butterfly"):
            expected = f"none, as method={method!r} chooses pairs"
            raise ArgumentError("wiring", expected, repr(wiring), "try `method='butterfly'`")
        if method in ON_A_FIXED_WIRING and wiring in CHOSEN:
            expected = f"a fixed one, as method={method!r} needs"
            raise ArgumentError("wiring", expected, repr(wiring), "try `method='pairs'`")
        if self.n_rotations is None or not (given or wiring == "butterfly" or method in ON_A_FIXED_WIRING):
            return
        fixed = self.fixed_wiring(n)
        if self.n_rotations != fixed.n_rotations:
            raise ArgumentError(
                "n_rotations",
                f"{fixed.n_rotations}, which {fixed!r} has, or none",
                self.n_rotations,
                "try `depth=…`, or `wiring='pairs'` for any number",
            )
