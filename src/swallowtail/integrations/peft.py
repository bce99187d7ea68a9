"""Givens orthogonal fine-tuning as a method of peft: ``get_peft_model(model, GivensConfig(target_modules=[…]))``.

The inputs of each chosen Linear are rotated, and only the angles are trained. Merged, W becomes W Q.

Importing this module adds the method to peft's tables of methods. `peft.utils.register_peft_method` is not used: it
accepts only names that peft's own enumeration has. Nothing in peft is replaced. A script that loads such an adapter has
to import this module first.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from swallowtail.errors import ArgumentError, absent

try:
    from peft import mapping
    from peft.config import PeftConfig
    from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge
    from peft.utils import (
        TRANSFORMERS_MODELS_TO_OFT_TARGET_MODULES_MAPPING,
        get_quantization_kwargs,
        resolve_quantization_backend,
    )
    from transformers.pytorch_utils import Conv1D
except ImportError as error:
    if error.name is None:  # both are there; something that they import is broken, and they say what
        raise
    raise absent("swallowtail.integrations.peft", "peft ≥ 0.21", "peft", name=error.name) from error

from swallowtail import checks
from swallowtail.nn import Rotate
from swallowtail.wiring import Butterfly, Grouped, Wiring

# peft would write into these, but rounds to few bits again: a tenth of the output was lost, and unmerging lost more.
FEW_BITS = ("bnb 4bit", "hqq")


class Method(str, enum.Enum):  # noqa: UP042 (StrEnum prints otherwise than what peft takes apart)
    """The name of the method, of the same kind as peft's own."""

    GIVENS = "GIVENS"


@dataclass
class GivensConfig(PeftConfig):
    """Which modules are rotated, and how.

    Args:
        target_modules: names of modules, a regular expression, or "all-linear", as for every method of peft.
        wiring: "grouped": rotations inside blocks of ``size`` neighbouring channels; "butterfly": over all channels.
        rounds: layers of disjoint pairs per block (8 if left out), or how many times a butterfly goes through its
            strides (1 if left out).
        size: channels per block; 128 if left out, or all of them where a module has fewer.
        pairs: of the blocks, "random" or "butterfly" (see `Grouped.fixed`).
        scales: whether each channel also gets a factor that is trained. The map is no longer orthogonal then.
        seed: for random pairs.
        init_weights: False starts from small random angles and scales near 1 rather than from the identity. For tests.
        bias: "none", "all" or "givens_only": which biases are trained.
        exclude_modules, layers_to_transform, layers_pattern, modules_to_save: as for every method of peft.
    """

    target_modules: list[str] | set[str] | str | None = field(default=None)
    wiring: Literal["grouped", "butterfly"] = field(default="grouped")
    rounds: int | None = field(default=None)
    size: int | None = field(default=None)
    pairs: Literal["random", "butterfly"] = field(default="random")
    scales: bool = field(default=False)
    seed: int = field(default=0)
    init_weights: bool = field(default=True)
    bias: Literal["none", "all", "givens_only"] = field(default="none")
    exclude_modules: list[str] | set[str] | str | None = field(default=None)
    layers_to_transform: list[int] | int | None = field(default=None)
    layers_pattern: list[str] | str | None = field(default=None)
    modules_to_save: list[str] | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = Method.GIVENS
        checks.choice("wiring", self.wiring, ("grouped", "butterfly"))
        checks.choice("pairs", self.pairs, ("random", "butterfly"))
        checks.choice("bias", self.bias, ("none", "all", "givens_only"))
        checks.flag("scales", self.scales)
        checks.flag("init_weights", self.init_weights)
        checks.integer("seed", self.seed, at_least=0)
        if self.rounds is not None:
            checks.integer("rounds", self.rounds, at_least=1)
        if self.size is not None and self.wiring == "butterfly":
            hint = "try wiring='grouped': a butterfly goes over all channels"
            raise ArgumentError("size", "none for a butterfly", self.size, hint)
        if self.size is not None:
            checks.integer("size", self.size, at_least=2)  # blocks of one channel would train nothing
        if self.layers_pattern and self.layers_to_transform in (None, []):
            hint = "try `layers_to_transform=[0, 1]`, or leave the pattern out"
            raise ArgumentError("layers_pattern", "layers_to_transform beside it", "it alone", hint)
        if isinstance(self.target_modules, list):
            self.target_modules = set(self.target_modules)
        if isinstance(self.exclude_modules, list):
            self.exclude_modules = set(self.exclude_modules)

    def wiring_for(self, n: int) -> Wiring:
        """The wiring of a module with n inputs."""
        if self.wiring == "butterfly":
            return _butterfly(n, self.rounds or 1)
        return _blocks(
            n, min(128, n) if self.size is None else self.size, self.rounds or 8, self.pairs, self.seed
        )


# Modules of one width share their wiring, and with it what kernels prepare for it.
_butterfly = lru_cache(maxsize=64)(Butterfly)


@lru_cache(maxsize=64)
def _blocks(n: int, size: int, layers: int, pairs: str, seed: int) -> Grouped:
    return Grouped.fixed(n, size, layers, pairs=pairs, seed=seed)


class GivensLinear(nn.Module, BaseTunerLayer):
    """A Linear, or transformers' Conv1D, whose inputs are rotated by the active adapters, one after another."""

    adapter_layer_names = ("givens_R",)
    other_param_names = ()

    def __init__(self, base_layer: nn.Module, adapter_name: str, config: GivensConfig, **kwargs: Any) -> None:
        super().__init__()
        self.base_layer = base_layer
        linear = self.get_base_layer()
        self.quantization_backend = resolve_quantization_backend(linear, **kwargs)
        self.transposed = isinstance(linear, Conv1D)  # it stores its weight as (in, out)
        if self.transposed:
            self.in_features, self.out_features = linear.weight.shape
        else:
            self.in_features, self.out_features = linear.in_features, linear.out_features
        self.givens_R = nn.ModuleDict()
        self.merged_adapters = list[str]()
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config)

    def update_layer(self, adapter_name: str, config: GivensConfig, **kwargs: Any) -> None:
        """Add an adapter."""
        layer = Rotate(wiring=config.wiring_for(self.in_features), scales=config.scales)
        if not config.init_weights:
            nn.init.normal_(layer.angles, std=0.1)
            if layer.scales is not None:
                nn.init.normal_(layer.scales, mean=1.0, std=0.1)
        self.givens_R[adapter_name] = layer
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The base layer's answer to rotated inputs."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        if not self.disable_adapters and not self.merged:
            for name in self.active_adapters:
                if name in self.givens_R:
                    x = self.givens_R[name](x).to(x.dtype)
        return self.base_layer(x, *args, **kwargs)

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Take adapters into the base weight; with ``safe_merge``, only if the result is finite."""
        wanted = check_adapters_to_merge(self, adapter_names) or []
        names = [name for name in wanted if name in self.givens_R]
        if not names:
            return
        weight = self._rows()
        for name in self.merged_adapters:
            weight = self._rotate(name).inverse_transpose(weight)
        merged = [*self.merged_adapters, *names]
        for name in reversed(merged):  # the first to act on x stands at the right end of W T₂ T₁
            weight = self._rotate(name).T(weight)
        if safe_merge and not bool(torch.isfinite(weight).all()):
            raise ArgumentError(f"adapters {', '.join(names)}", "finite merged weights", "NaN or infinity")
        self._set_rows(weight)
        self.merged_adapters = merged

    def unmerge(self) -> None:
        """Take all merged adapters out of the base weight again."""
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
            return
        weight = self._rows()
        for name in self.merged_adapters:
            weight = self._rotate(name).inverse_transpose(weight)
        self._set_rows(weight)
        self.merged_adapters = []

    def _rotate(self, name: str) -> Rotate:
        return cast(Rotate, self.givens_R[name])

    @torch.no_grad()
    def _rows(self) -> Tensor:
        """The base weight in float64, with rows that face the inputs."""
        backend = self.quantization_backend
        hint = "try keeping the adapter beside the model, or merge before quantising"
        if backend is not None and (not backend.supports_merge or backend.backend_name in FEW_BITS):
            got = f"{backend.backend_name} codes"
            raise ArgumentError("merge", "a base weight that can be written without loss", got, hint)
        weight = self.get_base_weight()
        if not weight.dtype.is_floating_point:
            raise ArgumentError("merge", "a base weight of floating-point numbers", weight.dtype, hint)
        return (weight.T if self.transposed else weight).double().contiguous()

    @torch.no_grad()
    def _set_rows(self, rows: Tensor) -> None:
        weight = rows.detach().T if self.transposed else rows.detach()
        if self.quantization_backend is not None:
            self.set_base_weight(weight.to(self.get_base_weight().dtype))
        else:
            self.get_base_layer().weight.data.copy_(weight)

    def __repr__(self) -> str:
        return "givens." + super().__repr__()


class GivensModel(BaseTuner):
    """Puts a `GivensLinear` in the place of each chosen module; peft makes it from a `GivensConfig`."""

    prefix = "givens_"
    tuner_layer_cls = GivensLinear
    target_module_mapping = TRANSFORMERS_MODELS_TO_OFT_TARGET_MODULES_MAPPING

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """peft calls this around a forward pass, and would drop ``adapter_names`` without a word."""
        if kwargs.get("adapter_names") is not None:
            hint = "try `model.set_adapter(name)` and one call for the rows of each adapter"
            raise ArgumentError("adapter_names", "one adapter for all rows", kwargs["adapter_names"], hint)
        yield

    def _create_and_replace(
        self,
        config: GivensConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        **kwargs: Any,
    ) -> None:
        if isinstance(target, GivensLinear):
            with _named(current_key):
                target.update_layer(adapter_name, config)
            return
        base = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
        backend = resolve_quantization_backend(base, **get_quantization_kwargs(self))
        if not isinstance(base, (nn.Linear, Conv1D)) and getattr(backend, "layer_type", "") != "linear":
            hint = "try names of Linear modules only, or `target_modules='all-linear'`"
            raise ArgumentError(f"target_modules, {current_key}", "a Linear", type(base).__name__, hint)
        _check_that_it_is_called(base, parent, current_key)
        with _named(current_key):
            module = GivensLinear(target, adapter_name, config, **get_quantization_kwargs(self))
        if adapter_name not in self.active_adapters:
            module.requires_grad_(False)
        self._replace_module(parent, target_name, module, target)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Errors of a wiring name the module that it does not fit."""
    try:
        yield
    except ArgumentError as error:
        hint = f"{error.hint}, or leave it out" if error.name == "size" else error.hint
        raise ArgumentError(f"{error.name} for {key}", error.expected, error.got, hint) from error


def _check_that_it_is_called(linear: nn.Module, parent: nn.Module, key: str) -> None:
    """An error where PyTorch reads the weight past the module, or makes it anew: the adapter would do nothing."""
    hint = ""
    if isinstance(parent, nn.MultiheadAttention):
        got, hint = "one that MultiheadAttention never calls", "leave it out, or name it in `exclude_modules`"
    elif isinstance(parent, nn.TransformerEncoderLayer) and torch.backends.mha.get_fastpath_enabled():
        got = "one that TransformerEncoderLayer does not call in evaluation"
        hint = "try `torch.backends.mha.set_fastpath_enabled(False)` first"
    elif is_parametrized(linear):
        got, hint = "a parametrised one", "try torch.nn.utils.parametrize.remove_parametrizations first"
    if hint:
        raise ArgumentError(
            f"target_modules, {key}", "a Linear that is called, with a weight of its own", got, hint
        )


mapping.PEFT_TYPE_TO_CONFIG_MAPPING[Method.GIVENS] = GivensConfig
mapping.PEFT_TYPE_TO_TUNER_MAPPING[Method.GIVENS] = GivensModel
mapping.PEFT_TYPE_TO_PREFIX_MAPPING[Method.GIVENS] = GivensModel.prefix
