"""The figure of `quantise.py`: outliers of weights and activations before and after, and the loss of every method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from quantised_model import Quantised
from torch import Tensor, nn

SHOWN = {
    "round to nearest": ("as they are", "#66707F"),
    "Hadamard": ("after Hadamard", "#D55E00"),
    "fitted pairs and scales, learned": ("after fitted pairs and scales, learned", "#0072B2"),
}


@torch.no_grad()
def inputs(model: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    """The inputs of every quantised Linear, by name."""
    found = dict[str, Tensor]()

    def keep(name: str, module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        found[name] = arguments[0].float().flatten(0, -2)

    handles = [
        module.register_forward_pre_hook(partial(keep, name))
        for name, module in model.named_modules()
        if isinstance(module, Quantised)
    ]
    model(rows)
    for handle in handles:
        handle.remove()
    return found


def peaks(x: Tensor) -> Tensor:
    """The largest magnitude of each column over the root mean square of all, largest first."""
    return (x.abs().amax(0) / x.square().mean().sqrt()).sort(descending=True).values.cpu()


@torch.no_grad()
def draw(models: dict[str, nn.Module], rows: list[dict[str, Any]], sample: Tensor, path: Path) -> None:
    """Two panels of channels, of the Linear with the worst outliers; one panel of losses."""
    plain = inputs(models["round to nearest"], sample)
    worst = max(plain, key=lambda name: float(peaks(plain[name])[0]))
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    activations, weights, losses = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    for name, (label, colour) in SHOWN.items():
        if name not in models:
            continue
        layer = models[name].get_submodule(worst)
        activations.plot(peaks(layer.transform(plain[worst])), color=colour, label=label)
        weights.plot(peaks(layer.rotated().float()), color=colour, label=label)
    activations.set(
        title=f"activations that {worst} reads", ylabel="largest magnitude of a channel ÷ rms of all"
    )
    weights.set(title=f"weight of {worst}")
    for axis in (activations, weights):
        axis.set(xlabel="channels, largest first", yscale="log")
        axis.legend(fontsize=8)
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    names = list(dict.fromkeys(row["method"] for row in rows if not row["method"].endswith("compensated")))
    wide = 0.8 / len(settings)
    for k, setting in enumerate(settings):
        values = {row["method"]: row["loss"] for row in rows if row["setting"] == setting}
        places = [i + (k - (len(settings) - 1) / 2) * wide for i in range(len(names))]
        shown = [max(values.get(name, 0.0), 1e-4) for name in names]
        losses.barh(places, shown, height=wide, label=setting)
    losses.set(
        xscale="log", xlabel="loss above the unquantised model, nats per byte", title="validation loss"
    )
    losses.set_yticks(range(len(names)), names)
    losses.invert_yaxis()
    losses.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=100)
