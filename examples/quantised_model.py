"""Linears whose weights and inputs are rounded to few bits after a transform; what `quantise.py` compares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from language_model import LanguageModel, Size, Text, precision
from quantise_transforms import GROUP, Bits, Moments
from torch import Tensor, nn
from tqdm import tqdm

RATIOS = [1 - 0.05 * k for k in range(13)]  # of the range that is kept, to choose from
OUTLIERS, GAIN = 2, 30.0  # channels per norm that are made large, and by how much


class Rounding(torch.autograd.Function):
    """Blocks to the nearest of so many levels between ratio times their least and ratio times their largest entry.

    The gradient passes straight through the rounding. It is written out because a step of learning mostly waits for
    small operations, and autograd needs more of them.
    """

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, ratio: Tensor | float, largest: int) -> Tensor:
        (low, first), (high, last) = blocks.min(-1, keepdim=True), blocks.max(-1, keepdim=True)
        floor, step = low * ratio, ((high - low) * ratio).clamp(min=1e-8) / largest
        exact = (blocks - floor) / step
        places = exact.clamp(0, largest).round_()
        ctx.save_for_backward(exact, places, low, high, first, last)
        ctx.ratio, ctx.largest = ratio, largest
        return torch.addcmul(floor, places, step)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[override]
        exact, places, low, high, first, last = ctx.saved_tensors
        ratio, largest = ctx.ratio, ctx.largest
        inside = grad * ((exact >= 0) & (exact <= largest))
        of_step = (grad * places - inside * exact).sum(-1, keepdim=True) / largest
        of_floor = (grad - inside).sum(-1, keepdim=True)
        of_ratio = None
        if isinstance(ratio, Tensor):
            of_ratio = (of_floor * low + of_step * (high - low)).sum()
        inside.scatter_add_(-1, first, (of_floor - of_step) * ratio)
        inside.scatter_add_(-1, last, of_step * ratio)
        return inside, of_ratio, None


def rounded(x: Tensor, bits: int, group: int, ratio: Tensor | float = 1.0) -> Tensor:
    """To the nearest of 2^bits levels in ``ratio`` times the range of a group; gradients pass straight."""
    if bits >= 16:
        return x
    n, dtype, x = x.shape[-1], x.dtype, x.float()
    blocks = (F.pad(x, (0, -n % group), mode="replicate") if n % group else x).unflatten(-1, (-1, group))
    return Rounding.apply(blocks, ratio, 2**bits - 1).flatten(-2)[..., :n].to(dtype)


@dataclass(frozen=True)
class Method:
    """A transform for each Linear, and the rate at which it is learned; 0 if it is fixed."""

    make: Callable[[Moments, Bits], nn.Module]
    rate: float = 0.0
    ratios: bool = False  # whether the ratios of the ranges are learned even so
    # On a GPU, as a CUDA graph: not if a step waits for the device, as solving systems does.
    recorded: bool = True

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn."""
        return self.rate > 0 or self.ratios


class Quantised(nn.Module):
    """A Linear whose weight and inputs are rounded after a transform."""

    def __init__(self, linear: nn.Linear, transform: nn.Module, bits: Bits) -> None:
        super().__init__()
        self.linear, self.transform, self.bits = linear, transform, bits
        self.ratios = nn.Parameter(torch.ones(2, device=linear.weight.device))  # of weights, of inputs
        self.fixed: Tensor | None = None  # the rounded weight, if it was not rounded to nearest

    def rotated(self) -> Tensor:
        """W T⁻¹."""
        turn = getattr(self.transform, "inverse_transpose", self.transform)
        return turn(self.linear.weight)

    def inputs(self, x: Tensor) -> Tensor:
        """T x, rounded: all channels of a token share a scale."""
        y = self.transform(x)
        return rounded(y, self.bits.activation, y.shape[-1], self.ratios[1])

    def forward(self, x: Tensor) -> Tensor:
        weight = self.fixed
        if weight is None:
            weight = rounded(self.rotated(), self.bits.weight, GROUP, self.ratios[0])
        return F.linear(self.inputs(x), weight.to(x.dtype))

    @torch.no_grad()
    def choose_ratios(self, x: Tensor) -> None:
        """The best ones for inputs x, of weights and of inputs alone: every method gets them."""
        y, weight, expected = self.transform(x), self.rotated(), self.linear(x)

        def error(of_weight: float, of_inputs: float) -> float:
            rough = rounded(weight, self.bits.weight, GROUP, of_weight) if of_weight else weight
            seen = rounded(y, self.bits.activation, y.shape[-1], of_inputs) if of_inputs else y
            return float((F.linear(seen, rough.to(seen.dtype)) - expected).float().square().sum())

        self.ratios[0] = min(RATIOS, key=lambda ratio: error(ratio, 0))
        self.ratios[1] = min(RATIOS, key=lambda ratio: error(0, ratio))


def with_outliers(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """The same function, with a few large channels after each norm, as large language models have them.

    The norm's gain grows and the columns of the weights that read it shrink. Small models trained for a short time have
    no such channels of their own.
    """
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in model.blocks:
            for norm, readers in ((block.norm1, [block.qkv]), (block.norm2, [block.gate, block.up])):
                chosen = torch.randperm(model.size.width, generator=generator)[:OUTLIERS]
                norm.weight[chosen] *= GAIN
                for linear in readers:
                    linear.weight[:, chosen] /= GAIN
    return model


def quantised(
    model: LanguageModel, method: Method, bits: Bits, known: dict[str, Moments], rows: Tensor
) -> LanguageModel:
    """A copy in which every Linear of the blocks is `Quantised`; ``known`` are their moments, ``rows`` give ratios."""
    student = copy.deepcopy(model).requires_grad_(False)
    for name, linear in list(student.blocks.named_modules()):
        if isinstance(linear, nn.Linear):
            block, attribute = name.split(".")
            transform = method.make(known[name], bits).to(linear.weight.device)
            layer = Quantised(linear, transform.requires_grad_(method.rate > 0), bits)
            layer.ratios.requires_grad_(method.learns)
            setattr(student.blocks[int(block)], attribute, layer)

    def watch(name: str, linear: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        student.get_submodule(name).choose_ratios(inputs[0].flatten(0, -2)[::4])

    handles = [
        module.register_forward_pre_hook(partial(watch, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith("blocks")
    ]
    with torch.no_grad(), precision(rows.device.type):
        model(rows)
    for handle in handles:
        handle.remove()
    return student


@torch.no_grad()
def compensate(student: nn.Module, text: Text, size: Size, device: str) -> None:
    """GPTQ: round column by column, and let the columns still to come make up for the error."""
    layers = [module for module in student.modules() if isinstance(module, Quantised)]
    moments = [
        torch.zeros(layer.linear.in_features, layer.linear.in_features, device=device) for layer in layers
    ]

    def watch(moment: Tensor, layer: Quantised, inputs: tuple[Tensor, ...]) -> None:
        x = layer.inputs(inputs[0]).flatten(0, -2).float()
        moment += x.T @ x

    handles = [
        layer.register_forward_pre_hook(partial(watch, moment))
        for layer, moment in zip(layers, moments, strict=True)
    ]
    rows = text.batches(size, device, seed=9)
    for _ in range(4):
        student(next(rows)[:, :-1])
    for handle in handles:
        handle.remove()
    pairs = list(zip(layers, moments, strict=True))
    for layer, moment in tqdm(pairs, desc="compensating", leave=False, mininterval=1):
        layer.fixed = gptq(layer.rotated().float(), moment, layer.bits.weight, float(layer.ratios[0]))


def gptq(weight: Tensor, moment: Tensor, bits: int, ratio: float) -> Tensor:
    """The rounded weight; ``moment`` is the sum of x xᵀ over inputs x."""
    weight, result, n = weight.clone(), weight.clone(), weight.shape[1]
    damped = moment + 0.01 * moment.diagonal().mean() * torch.eye(n, device=weight.device)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
    for start in range(0, n, GROUP):
        stop = min(start + GROUP, n)
        block = weight[:, start:stop]
        low = block.amin(1) * ratio
        step = (block.amax(1) * ratio - low).clamp(min=1e-8) / (2**bits - 1)
        errors = torch.zeros_like(block)
        for k in range(start, stop):
            column = weight[:, k]
            result[:, k] = ((column - low) / step).round().clamp(0, 2**bits - 1) * step + low
            errors[:, k - start] = (column - result[:, k]) / factor[k, k]
            weight[:, k + 1 : stop] -= errors[:, k - start, None] * factor[k, k + 1 : stop]
        weight[:, stop:] -= errors @ factor[start:stop, stop:]
    return result
