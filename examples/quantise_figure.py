"""The figure of `quantise.py`: outliers of weights and activations before and after, and the loss of every method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from quantised_model import Quantised
from torch import Tensor, nn

PLAIN = "round to nearest"
SHOWN = {
    PLAIN: ("as they are", "#66707F"),
    "Hadamard": ("after Hadamard", "#D55E00"),
    "fitted pairs and scales, learned": ("after fitted pairs and scales, learned", "#0072B2"),
}
COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#B0B0B0")  # of settings: none of a method


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
    plain = inputs(models[PLAIN], sample)
    worst = max(plain, key=lambda name: float(peaks(plain[name])[0]))
    figure = Figure(figsize=(13, 5), layout="constrained")
    activations, weights, losses = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
    for name, (label, colour) in SHOWN.items():
        if name not in models:
            continue
        layer = models[name].get_submodule(worst)
        activations.plot(peaks(layer.transform(plain[worst])), color=colour, label=label)
        weights.plot(peaks(layer.rotated().float()), color=colour)
    activations.set(title=f"inputs of {worst}", ylabel="largest magnitude ÷ root mean square of all")
    weights.set(title=f"weight of {worst}")
    for axis in (activations, weights):
        axis.set(xlabel="channels, largest first", yscale="log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    bars(losses, rows)
    figure.legend(*activations.get_legend_handles_labels(), loc="outside lower left", ncols=len(SHOWN))
    figure.legend(*losses.get_legend_handles_labels(), loc="outside lower right", ncols=3)
    figure.savefig(path, dpi=100)


def bars(axis: Axes, rows: list[dict[str, Any]]) -> None:
    """The loss that each method adds, as a share of what rounding to nearest adds at the same setting."""
    worst = {row["setting"]: row["loss"] for row in rows if row["method"] == PLAIN}
    names = list(dict.fromkeys(row["method"] for row in rows if not row["method"].endswith("compensated")))
    wide = 0.8 / len(worst)
    for k, (setting, whole) in enumerate(worst.items()):
        shares = {row["method"]: row["loss"] / whole for row in rows if row["setting"] == setting}
        places = [i + (k - (len(worst) - 1) / 2) * wide for i in range(len(names))]
        label = f"{setting}, 1 = {whole:.2g} nats"
        shown = [shares.get(name, 0.0) for name in names]
        axis.barh(places, shown, height=wide, label=label, color=COLOURS[k % len(COLOURS)])
    axis.set(title="validation loss that is added", xlabel="share of what rounding to nearest adds")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
