"""The figure of `quantise.py`: outliers of weights and activations before and after, and the loss of every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from quantised_model import Quantised
from torch import Tensor, nn

SHOWN = ("round to nearest", "Hadamard", "grouped and scales, learned")
COLOURS = ("#888888", "#3b6fb6", "#c8452b")


@torch.no_grad()
def peaks(model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of the first Linear: the largest |activation| and the largest |weight| per channel, after the transform."""
    layer = next(module for module in model.modules() if isinstance(module, Quantised))
    seen = list[Tensor]()
    handle = layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(rows)
    handle.remove()
    x = layer.transform(seen[0].float()).flatten(0, -2)
    return x.abs().amax(0).cpu(), layer.rotated().abs().amax(0).float().cpu()


def draw(models: dict[str, nn.Module], rows: list[dict[str, Any]], sample: Tensor, path: Path) -> None:
    """Two panels of channels, one of losses."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    activations, weights, losses = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
    for name, colour in zip(SHOWN, COLOURS, strict=True):
        x, w = peaks(models[name], sample)
        for axis, values in ((activations, x), (weights, w)):
            axis.plot(values.sort(descending=True).values, color=colour, label=name)
    activations.set(title=f"activations, {settings[0]}", ylabel="largest magnitude of a channel")
    weights.set(title=f"weights, {settings[0]}")
    for axis in (activations, weights):
        axis.set(xlabel="channels, largest first", yscale="log")
    activations.legend(title="first Linear, after", fontsize=8)
    names = list(dict.fromkeys(row["method"] for row in rows if not row["method"].endswith("compensated")))
    wide = 0.8 / len(settings)
    for k, setting in enumerate(settings):
        values = {row["method"]: row["loss"] for row in rows if row["setting"] == setting}
        places = [i + (k - (len(settings) - 1) / 2) * wide for i in range(len(names))]
        losses.barh(places, [max(values[name], 1e-4) for name in names], height=wide, label=setting)
    losses.set(
        xscale="log", xlabel="loss above the unquantised model, nats per byte", title="validation loss"
    )
    losses.set_yticks(range(len(names)), names)
    losses.invert_yaxis()
    losses.legend(fontsize=8)
    figure.savefig(path, dpi=130)
