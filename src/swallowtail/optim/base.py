"""What the optimisers share: the base class, checks of hyper-parameters, closures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from swallowtail import checks
from swallowtail.errors import ArgumentError

Closure = Callable[[], Any]


class GivensOptimizer(Optimizer):
    """A torch optimiser that checks every group it is given and keeps its state's dtypes. Abstract.

    A subclass says in `_check_group` which hyper-parameters make sense, in `_check_together` which have to agree with
    those of the first group, and in ``state_on_cpu`` where its state lives. Its step calls `_check_changes`.

    `Optimizer.load_state_dict` casts all floating state to the parameter's dtype. Here it comes back as it was saved,
    so that float32 moments of bfloat16 parameters, counters and angles resume to the same bits.
    """

    state_on_cpu = False
    _checked: list[list[Any]] | None = None  # settings of all groups when they were last checked

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as `Optimizer` does, after checking its parameters and its hyper-parameters."""
        super().add_param_group(param_group)
        try:
            group = self.param_groups[-1]
            for index, p in enumerate(group["params"]):
                checks.real_dtype(f"parameter {index}", p.dtype)
            self._check_group(group)
            self._check_together(group, self.param_groups[0])
        except Exception:
            self.param_groups.pop()
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _check_together(self, group: dict[str, Any], first: dict[str, Any]) -> None:
        """Check a group against the first one."""

    def _check_changes(self) -> None:
        """Check again what was set in ``param_groups`` since, but for the rate, which schedulers set at every step."""
        now = [
            [value for name, value in group.items() if name not in ("lr", "params")]
            for group in self.param_groups
        ]
        if now != self._checked:
            for group in self.param_groups:
                self._check_group(group)
                self._check_together(group, self.param_groups[0])
            self._checked = now

    def _check_loaded(self, groups: list[dict[str, Any]]) -> None:
        """Check groups that are to be loaded, while nothing has changed yet."""
        for group in groups:
            try:
                self._check_group(group)
                self._check_together(group, groups[0])
            except KeyError as error:
                expected = f"what state_dict of a {type(self).__name__} returns"
                got = f"a group without {error.args[0]}"
                raise ArgumentError("state_dict", expected, got, "try one of the same class") from error

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of what `state_dict` returned; tensors keep their dtypes and go to their parameter's device."""
        seen: list[dict[str, Any]] = []

        def look(_: Any, loaded: dict[str, Any]) -> None:
            self._check_loaded(loaded["param_groups"])
            seen.append(loaded)

        # The hook registered last sees the dictionary as the user's own hooks have left it.
        handle = self.register_load_state_dict_pre_hook(look)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        for saved, group in zip(seen[0]["param_groups"], self.param_groups, strict=True):
            for key, p in zip(saved["params"], group["params"], strict=True):
                for name, value in seen[0]["state"].get(key, {}).items():
                    if isinstance(value, Tensor):
                        on_cpu = self.state_on_cpu or value.ndim == 0  # counters stay on the CPU
                        self.state[p][name] = value.detach().to("cpu" if on_cpu else p.device, copy=True)


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float = math.inf,
) -> None:
    """Check a hyper-parameter that is a number, or a tensor that holds one (as a learning rate may)."""
    if isinstance(value, Tensor) and value.numel() != 1:
        # The words in brackets are torch's own; its test suite asks for them.
        expected = f"one number (Tensor {name} must be 1-element)"
        raise ArgumentError(name, expected, f"shape {tuple(value.shape)}")
    low = f" > {above:g}" if above is not None else f" ≥ {at_least:g}" if at_least is not None else ""
    high = "" if below == math.inf else f" < {below:g}"
    expected = "a finite number" + " and".join(part for part in (low, high) if part)
    if isinstance(value, str):  # YAML reads 1e-3 as text, which a scheduler cannot multiply
        raise ArgumentError(name, expected, repr(value), "try float(…)")
    try:
        x = float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, expected, repr(value)) from error
    too_small = (above is not None and x <= above) or (at_least is not None and x < at_least)
    if not math.isfinite(x) or too_small or x >= below:
        raise ArgumentError(name, expected, f"{x:g}")


def check_same_in_all_groups(name: str, group: dict[str, Any], first: dict[str, Any], reason: str) -> None:
    """Check an option that has to be the same in all parameter groups."""
    if group[name] != first[name]:
        raise ArgumentError(
            name,
            f"the same in all groups, {reason}",
            f"{first[name]!r} and {group[name]!r}",
            "try it as an argument of the optimizer",
        )


def loss_of(closure: Closure | None, why: str = "", *, keep_graph: bool = False) -> Callable[[], Tensor]:
    """The closure with gradients enabled, returning its loss as a tensor.

    Args:
        closure: the user's own; an error if it is None.
        why: it is needed.
        keep_graph: whether the loss will be differentiated.
    """
    if closure is None:
        raise ArgumentError(
            "closure", f"a function, since {why}", None, "try step(lambda: …), see torch.optim.LBFGS"
        )

    def evaluate() -> Tensor:
        with torch.enable_grad():
            loss = closure()
        if isinstance(loss, (int, float)):
            return torch.tensor(float(loss), dtype=torch.float64)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ArgumentError(
                "closure", "a function that returns the loss, one number", got, "try `return loss`"
            )
        if keep_graph and not loss.requires_grad:
            raise ArgumentError(
                "closure",
                "a loss that autograd can differentiate",
                "one without a graph",
                "try without .detach()",
            )
        return loss if keep_graph else loss.detach()

    return evaluate
