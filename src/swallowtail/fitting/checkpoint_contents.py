"""What a checkpoint holds: finished forms and states of a search, written and checked.

The search runs in compiled code that trusts its indices and lengths, so all of them are checked here first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from swallowtail import io
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.stages import STAGES
from swallowtail.fitting.result import Candidate

Form = dict[str, Any]  # arrays, and what JSON can hold

INTEGERS = {"pairs": np.int32, "offsets": np.int64, "coordinates": np.int32}  # arrays; the others are float64


def finished_form(candidate: Candidate) -> Form:
    """A finished form as a checkpoint keeps it."""
    header, tensors = io.pack(candidate.operator)
    return {
        "method": candidate.method,
        "history": candidate.history,
        "objective": candidate.objective,
        "operator": header,
        **{key: tensor.numpy() for key, tensor in tensors.items()},
    }


def check_form(form: Form, n: int, budget: int) -> Candidate | None:
    """Check a form read from disk, on n coordinates; return it if it is finished.

    Raises:
        ArgumentError: something is wrong.
        ValueError, TypeError, OverflowError: NumPy or the operator's constructor refuses it.
        KeyError: something is missing.
    """
    form["history"] = _history(form["history"])
    if "method" not in form:
        _check_state(form, n, budget)
        return None
    if not isinstance(form["method"], str):
        raise ArgumentError("method", "a name", repr(form["method"]))
    operator = _operator(form, n)
    return Candidate(form["method"], operator, form["history"], _number("objective", form["objective"]))


def _operator(form: Form, n: int) -> Any:
    """The operator; `io.unpack` looks at every size that its construction would trust."""
    header, tensors = form["operator"], {}
    for key, value in form.items():
        if isinstance(value, np.ndarray):
            _check_array(key, value, None, INTEGERS.get(key, np.float64))
            tensors[key] = torch.from_numpy(value)
    if _integer("n", header["wiring"]["n"], 1, n) != n:
        raise ArgumentError("n", str(n), repr(header["wiring"]["n"]))
    return io.unpack(header, tensors)


def _check_state(state: Form, n: int, budget: int) -> None:
    """Check a state of `core.stages.search_pairs`."""
    stage = state["stage"]
    if stage not in STAGES:
        raise ArgumentError("stage", f"one of {', '.join(STAGES)}", repr(stage))
    _check_product(state["pairs"], state["angles"], n, budget)
    _number("value", state["value"])
    if stage in ("build", "cycle"):
        _check_product(state["current_pairs"], state["current_angles"], n, budget)
        _number("current_value", state["current_value"])
    if stage == "build":
        _integer("start", state["start"], 0, 2**62)
        _integer("step", state["step"], 0, 2**62)
    if stage in ("trial", "cycle"):
        _integer("index", state["index"], 0, 2**62)
    if stage == "cycle":
        np.random.default_rng(0).bit_generator.state = state["generator"]  # refuses what is no such state


def _check_product(pairs: Any, angles: Any, n: int, budget: int) -> None:
    """Rotations one after another: indices in range, i ≠ j, one finite angle each, no more than allowed."""
    count = len(angles)
    _check_array("angles", angles, (count,), np.float64)
    _check_array("pairs", pairs, (count, 2), np.int64)
    if count > budget:
        raise ArgumentError("angles", f"at most {budget}", count)
    if count and not (pairs.min() >= 0 and pairs.max() < n):
        raise ArgumentError("pairs", f"indices from 0 to {n - 1}", f"{pairs.min()} to {pairs.max()}")
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ArgumentError("pairs", "two different coordinates each", "one paired with itself")


def _check_array(name: str, value: Any, shape: tuple[int, ...] | None, dtype: Any) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != dtype or shape not in (None, value.shape):
        got = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise ArgumentError(name, f"{np.dtype(dtype)} of shape {shape or 'any'}", got)
    if not np.isfinite(value).all():
        raise ArgumentError(name, "finite numbers", "NaN or infinity")


def _history(value: Any) -> list[tuple[str, int, float]]:
    return [(str(stage), _integer("history", k, 0, 2**62), _number("history", v)) for stage, k, v in value]


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise ArgumentError(name, "a finite number", repr(value))
    return float(value)


def _integer(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentError(name, f"an integer from {least} to {most}", repr(value))
    return value
