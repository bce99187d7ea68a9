"""Linears whose weights and inputs are rounded to few bits after a transform; what `quantise.py` compares."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from language_model import LanguageModel, Size, Text, precision
from torch import Tensor, nn
from tqdm import tqdm

from swallowtail import Butterfly, Grouped
from swallowtail.nn import Rotate

GROUP = 128  # weights of a row that share a scale
OUTLIERS, GAIN = 2, 30.0  # channels per norm that are made large, and by how much


class Bits(NamedTuple):
    """How many per weight and per activation; 16 stands for none lost."""

    weight: int
    activation: int


def rounded(x: Tensor, bits: int, group: int) -> Tensor:
    """To the nearest of 2^bits levels between the smallest and the largest of a group; gradients pass straight."""
    if bits >= 16:
        return x
    n = x.shape[-1]
    blocks = F.pad(x.float(), (0, -n % group), mode="replicate").unflatten(-1, (-1, group))
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    step = (high - low).clamp(min=1e-8) / (2**bits - 1)
    places = (blocks - low) / step
    places = places + (places.round() - places).detach()
    return (places * step + low).flatten(-2)[..., :n].to(x.dtype)


class Dense(nn.Module):
    """A learned dense rotation of all channels: the Hadamard blocks times the exponential of a skew matrix."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.skew = n, nn.Parameter(torch.zeros(n * (n - 1) // 2))
        self.register_buffer("start", hadamard(n)(torch.eye(n)).detach())
        self.kept: tuple[object, Tensor] = (None, self.start)

    def matrix(self) -> Tensor:
        """Made once per step: the weight and the activations need the same one."""
        state = (self.skew._version, torch.is_grad_enabled())
        if self.kept[0] != state:
            places = torch.triu_indices(self.n, self.n, 1, device=self.skew.device)
            upper = self.skew.new_zeros(self.n, self.n).index_put(tuple(places), self.skew)
            with torch.autocast(self.skew.device.type, enabled=False):
                self.kept = state, torch.linalg.matrix_exp(upper - upper.T) @ self.start
        return self.kept[1]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix().to(x.dtype)

    inverse_transpose = forward


def random_signs(n: int, seed: int) -> Tensor:
    """±1 at random."""
    return torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1


def hadamard(n: int, scales: Tensor | None = None, layers: int = 7) -> Rotate:
    """A Hadamard matrix per block of up to 128 channels, after scales if they are given.

    More than seven ``layers`` start at rest, to be learned.
    """
    block = min(GROUP, n)
    wiring = Grouped.fixed(n, block, layers=layers, pairs="butterfly")
    layer = Rotate(wiring=wiring, scales=scales is not None)
    with torch.no_grad():
        layer.angles[int(wiring.offsets[layers - (block - 1).bit_length()]) :] = math.pi / 4
        if layer.scales is not None and scales is not None:
            layer.scales.copy_(scales)
    return layer


def butterfly(n: int) -> Rotate:
    """Learned over all channels; it starts as a Hadamard matrix, or as near to one as n allows."""
    layer = Rotate(wiring=Butterfly(n))
    nn.init.constant_(layer.angles, math.pi / 4)
    return layer


@dataclass(frozen=True)
class Method:
    """A transform for each width, and the rate at which it is learned; 0 if it is fixed."""

    make: Callable[
        [int, Tensor], nn.Module
    ]  # of the width, and of scales that balance activations and weights
    rate: float = 0.0


class Quantised(nn.Module):
    """A Linear whose weight and inputs are rounded after a transform."""

    def __init__(self, linear: nn.Linear, transform: nn.Module, bits: Bits) -> None:
        super().__init__()
        self.linear, self.transform, self.bits = linear, transform, bits
        self.fixed: Tensor | None = None  # the rounded weight, if it was not rounded to nearest

    def rotated(self) -> Tensor:
        """W T⁻¹."""
        turn = getattr(self.transform, "inverse_transpose", self.transform)
        return turn(self.linear.weight)

    def inputs(self, x: Tensor) -> Tensor:
        """T x, rounded: all channels of a token share a scale."""
        y = self.transform(x)
        return rounded(y, self.bits.activation, y.shape[-1])

    def forward(self, x: Tensor) -> Tensor:
        weight = rounded(self.rotated(), self.bits.weight, GROUP) if self.fixed is None else self.fixed
        return F.linear(self.inputs(x), weight.to(x.dtype))


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


@torch.no_grad()
def balances(model: LanguageModel, rows: Tensor) -> dict[str, Tensor]:
    """Per Linear of the blocks, scales that give activations and weights the same range: √(rms w / rms x)."""
    found = dict[str, Tensor]()

    def watch(name: str, linear: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0].flatten(0, -2).float()
        found[name] = (linear.weight.square().mean(0) / x.square().mean(0).clamp(min=1e-12)).pow(0.25).cpu()

    handles = [
        module.register_forward_pre_hook(partial(watch, name))
        for name, module in model.blocks.named_modules()
        if isinstance(module, nn.Linear)
    ]
    model(rows)
    for handle in handles:
        handle.remove()
    return found


def quantised(model: LanguageModel, method: Method, bits: Bits, scales: dict[str, Tensor]) -> LanguageModel:
    """A copy in which every Linear of the blocks is `Quantised`; ``scales`` are its `balances`."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name, linear in list(model.blocks.named_modules()):
        if isinstance(linear, nn.Linear):
            block, attribute = name.split(".")
            transform = method.make(linear.in_features, scales[name]).to(linear.weight.device)
            transform.requires_grad_(method.rate > 0)
            setattr(model.blocks[int(block)], attribute, Quantised(linear, transform, bits))
    return model


def learn(
    student: nn.Module, teacher: nn.Module, text: Text, size: Size, device: str, steps: int, rate: float
) -> None:
    """Adam on the transforms, against the unquantised model."""
    parameters = [p for p in student.parameters() if p.requires_grad]
    optimise = torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.95))
    rows = text.batches(size, device, seed=7)
    for step in tqdm(range(steps), desc="learning", leave=False, mininterval=1):
        optimise.param_groups[0]["lr"] = rate * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        x = next(rows)[:, :-1]
        with precision(device):
            with torch.no_grad():
                target = teacher(x).float().log_softmax(-1)
            found = student(x).float().log_softmax(-1)
        optimise.zero_grad()
        F.kl_div(found.flatten(0, 1), target.flatten(0, 1), log_target=True, reduction="batchmean").backward()
        optimise.step()


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
        layer.fixed = gptq(layer.rotated().float(), moment, layer.bits.weight)


def gptq(weight: Tensor, moment: Tensor, bits: int) -> Tensor:
    """The rounded weight; ``moment`` is the sum of x xᵀ over inputs x."""
    weight, result, n = weight.clone(), weight.clone(), weight.shape[1]
    damped = moment + 0.01 * moment.diagonal().mean() * torch.eye(n, device=weight.device)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
    for start in range(0, n, GROUP):
        stop = min(start + GROUP, n)
        block = weight[:, start:stop]
        low = block.amin(1)
        step = (block.amax(1) - low).clamp(min=1e-8) / (2**bits - 1)
        errors = torch.zeros_like(block)
        for k in range(start, stop):
            column = weight[:, k]
            result[:, k] = ((column - low) / step).round().clamp(0, 2**bits - 1) * step + low
            errors[:, k - start] = (column - result[:, k]) / factor[k, k]
            weight[:, k + 1 : stop] -= errors[:, k - start, None] * factor[k, k + 1 : stop]
        weight[:, stop:] -= errors @ factor[start:stop, stop:]
    return result
