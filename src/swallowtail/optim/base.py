"""What the three optimisers share: manners towards torch.optim, argument checks, parameters as one vector."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from swallowtail import checks

Closure = Callable[[], Any]


class GivensOptimizer(Optimizer):
    """A torch optimiser that checks every group it is given and keeps its state's dtypes. Abstract.

    A subclass says in `_check_group` which hyper-parameters make sense, and in ``state_on_cpu`` where its
    state lives. `Optimizer.load_state_dict` casts all floating state to the parameter's dtype; here it comes
    back as it was saved, so that float32 moments of bfloat16 parameters, counters and angles resume to the
    same bits.
    """

    state_on_cpu = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as `Optimizer` does, after checking its parameters and its hyper-parameters."""
        super().add_param_group(param_group)
        try:
            group = self.param_groups[-1]
            for index, p in enumerate(group["params"]):
                checks.real_dtype(f"parameter {index}", p.dtype)
            self._check_group(group)
        except Exception:
            self.param_groups.pop()
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of what `state_dict` returned; tensors keep their dtypes and go to their parameter's device."""
        # The last hook to run sees the dictionary as the user's own hooks have left it.
        seen: list[dict[str, Any]] = []
        handle = self.register_load_state_dict_pre_hook(lambda _, loaded: seen.append(loaded))
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        for saved, group in zip(seen[0]["param_groups"], self.param_groups, strict=True):
            for key, p in zip(saved["params"], group["params"], strict=True):
                for name, value in seen[0]["state"].get(key, {}).items():
                    if isinstance(value, Tensor):
                        own_place = self.state_on_cpu or value.ndim == 0  # counters stay on the CPU
                        self.state[p][name] = value.detach().to("cpu" if own_place else p.device, copy=True)
        for group in self.param_groups:
            self._check_group(group)


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float = math.inf,
) -> None:
    """Check a hyper-parameter that is a number, or a tensor that holds one (as a learning rate may)."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element, got shape {tuple(value.shape)}")
    try:
        x = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected a number, got {value!r}") from error
    low = f" > {above:g}" if above is not None else f" ≥ {at_least:g}" if at_least is not None else ""
    wanted = " and".join(part for part in (low, "" if below == math.inf else f" < {below:g}") if part)
    too_small = (above is not None and x <= above) or (at_least is not None and x < at_least)
    if not math.isfinite(x) or too_small or x >= below:
        raise ValueError(f"{name}: expected a finite number{wanted}, got {x:g}")


def dense_gradient(p: Tensor) -> Tensor:
    """p.grad, or why it cannot be used."""
    assert p.grad is not None
    if p.grad.is_sparse or p.grad.layout is not torch.strided:
        raise RuntimeError(
            f"expected dense gradients, got {p.grad.layout} for a parameter of shape {tuple(p.shape)}; "
            "try sparse=False in the embedding, or torch.optim.SparseAdam for it"
        )
    return p.grad


def largest_norm(tensors: Sequence[Tensor]) -> Tensor:  # shape: ()
    """The largest 2-norm of them, NaN if there is one in any; nothing waits for the device."""
    wide = [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]
    norms = list(torch._foreach_norm(wide))
    if len({(norm.device, norm.dtype) for norm in norms}) > 1:
        norms = [norm.to(norms[0].device, torch.float64) for norm in norms]
    return torch.stack(norms).amax()


def norm_limit(tensors: Sequence[Tensor]) -> float:
    """What `largest_norm` must stay below for squares not to overflow; NaN does not."""
    wide = any(t.dtype == torch.float64 for t in tensors)
    return math.sqrt(torch.finfo(torch.float64 if wide else torch.float32).max)


BAD_GRADIENT = "some gradient is NaN, infinite, or so large that its square overflows"
BAD_PARAMETER = "some parameter would become NaN or infinite"


def warn_skipped(what: str) -> None:
    """Say that a step was not taken."""
    warn_user(
        f"{what}: this step is skipped; parameters stay as they were. If it happens often, look for the layer that "
        "overflows, or lower the learning rate"
    )


def warn_user(message: str) -> None:
    """A RuntimeWarning that points at the caller's own line, however deep in here and in torch it comes from."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("swallowtail", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def loss_of(closure: Closure | None, why: str, *, keep_graph: bool = False) -> Callable[[], Tensor]:
    """The closure with gradients enabled, returning its loss as a tensor, or a clear error."""
    if closure is None:
        raise TypeError(
            f"step: expected a closure, got None; {why}: try step(lambda: …), see torch.optim.LBFGS"
        )

    def evaluate() -> Tensor:
        with torch.enable_grad():
            loss = closure()
        if isinstance(loss, (int, float)):
            return torch.tensor(float(loss), dtype=torch.float64)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(
                f"closure: expected it to return the loss, one number, got {got}; try `return loss`"
            )
        if keep_graph and not loss.requires_grad:
            raise TypeError(
                "closure: expected a loss that autograd can differentiate, got one without a graph"
            )
        return loss if keep_graph else loss.detach()

    return evaluate


class FlatParameters:
    """Several parameters read and written as one vector, in at least float32, on the first one's device."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        self.params = list(params)
        self.device = self.params[0].device
        self.dtype = torch.float32
        for p in self.params:
            self.dtype = torch.promote_types(self.dtype, p.dtype)
        self.n = sum(p.numel() for p in self.params)

    def values(self) -> Tensor:  # shape: (n,)
        """A copy of all parameters."""
        return torch.cat([p.detach().reshape(-1).to(self.device, self.dtype) for p in self.params])

    def gradient(self, sign: float = 1.0) -> Tensor:  # shape: (n,)
        """All gradients times ``sign``; zeros for parameters without one."""
        flat = self.join([None if p.grad is None else dense_gradient(p) for p in self.params])
        return flat if sign == 1.0 else flat.mul_(sign)

    def join(self, parts: Sequence[Tensor | None]) -> Tensor:  # shape: (n,)
        """One tensor a parameter as one vector; zeros for None."""
        filled = [
            torch.zeros_like(p) if part is None else part for p, part in zip(self.params, parts, strict=True)
        ]
        return torch.cat([part.detach().reshape(-1).to(self.device, self.dtype) for part in filled])

    def split(self, x: Tensor) -> list[Tensor]:
        """x cut into pieces shaped as the parameters."""
        pieces = x.split([p.numel() for p in self.params])
        return [piece.view(p.shape) for p, piece in zip(self.params, pieces, strict=True)]

    def assign(self, x: Tensor) -> None:
        """Write x back, rounded to each parameter's dtype."""
        for p, piece in zip(self.params, self.split(x), strict=True):
            p.detach().copy_(piece)
